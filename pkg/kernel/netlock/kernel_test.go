//go:build linux

package netlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
	"github.com/seed-11a05479/kube-proxy/test/squatter"
)

// nobody is an unprivileged user.
const nobody = 65534

// TestKernelTry checks that the second one learns who the first one is.
func TestKernelTry(t *testing.T) {
	netns.Require(t)
	lock := must(t)
	if owner, held, err := Holder(); owner.PID != os.Getpid() || owner.Serving || !held || err != nil {
		t.Errorf("Holder: %+v, %t, %v", owner, held, err)
	}
	release(t, lock)
	if owner, held, err := Holder(); owner != (Owner{}) || held || err != nil {
		t.Errorf("Holder without one: %+v, %t, %v", owner, held, err)
	}
	lock, err := Acquire(t.Context(), Request{Self: Owner{Mode: "nftables", Version: "v1.2.3"}, Serving: func() bool { return true }, Weak: unexpected(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Try(Owner{Mode: "iptables"}, unexpected(t))
	if o := heldBy(t, err); o.PID != os.Getpid() || o.Mode != "nftables" || !o.Serving {
		t.Errorf("held by %+v", o)
	}
	for _, words := range []string{fmt.Sprintf("process %d", os.Getpid()), "mode nftables", "version v1.2.3", "since 20"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not say %q", err, words)
		}
	}
	release(t, lock)
}

// TestKernelWaits has one process after the other wait, and the holder say that it serves, and that it does not.
func TestKernelWaits(t *testing.T) {
	netns.Require(t)
	serving := make(chan bool, 1)
	serving <- false
	first := await(t.Context(), Request{Self: Owner{Mode: "first"}, Serving: func() bool { now := <-serving; serving <- now; return now }})
	lock := first.gets(t)
	second := await(t.Context(), Request{Self: Owner{Mode: "second"}})
	second.owner(t, "one that does not serve", func(o Owner) bool { return o.Mode == "first" && !o.Serving })
	<-serving
	serving <- true
	second.owner(t, "one that serves", func(o Owner) bool { return o.Mode == "first" && o.Serving })
	second.waits(t)
	release(t, lock)
	lock = second.gets(t)
	ctx, cancel := context.WithCancel(t.Context())
	third := await(ctx, Request{Self: Owner{Mode: "third"}})
	third.owner(t, "the second", func(o Owner) bool { return o.Mode == "second" })
	cancel()
	if err := <-third.err; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	release(t, lock)
}

// TestKernelMutualExclusion has many processes wait: each gets the lock once, alone.
func TestKernelMutualExclusion(t *testing.T) {
	netns.Require(t)
	lock := must(t)
	locks := make(chan *Lock)
	const waiters = 8
	for i := range waiters {
		w := await(t.Context(), Request{Self: Owner{Mode: fmt.Sprint(i)}})
		go func() { locks <- <-w.lock }()
	}
	for range waiters {
		release(t, lock)
		if lock = <-locks; lock == nil {
			t.Fatal("a wait ended without the lock")
		}
		select {
		case <-locks:
			t.Fatal("two have the lock")
		case <-time.After(3 * pause / 2):
		}
	}
	release(t, lock)
}

// TestKernelSilentHolder has the lock held by a process that does not answer, such as a stopped one. It is waited for, because it
// may go on, and reported as one that does not serve.
func TestKernelSilentHolder(t *testing.T) {
	netns.Require(t)
	holder, err := open(unix.NFNL_SUBSYS_ULOG)
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.claim(t.Context(), &Request{}); err != nil {
		t.Fatal(err)
	}
	w := await(t.Context(), Request{})
	w.owner(t, "one that does not answer", func(o Owner) bool { return o == Owner{} })
	w.waits(t)
	if err := holder.file.Close(); err != nil {
		t.Error(err)
	}
	release(t, w.gets(t))
}

// TestKernelSquatters has processes without CAP_NET_ADMIN in this network namespace take the name, in every way. They are named
// and passed by, and of two kube-proxies beside them one gets the lock.
func TestKernelSquatters(t *testing.T) {
	netns.Require(t)
	const lacks, another, refuses = "does not have the capability NET_ADMIN", "another user's", "accepts no connections"
	ownNamespace := func(uid int) *syscall.SysProcAttr {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{NoSetGroups: true}}
	}
	asNobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	for _, test := range []struct {
		name     string
		squatter squatter.Squatter
		as       *syscall.SysProcAttr
		want     string
	}{
		{"silent", squatter.Squatter{What: squatter.Silent}, nil, lacks},
		{"answers", squatter.Squatter{What: squatter.Answer}, nil, lacks},
		{"bound", squatter.Squatter{What: squatter.Bind}, nil, refuses},
		{"full", squatter.Squatter{What: squatter.Full}, nil, refuses},
		{"nobody", squatter.Squatter{What: squatter.Answer}, asNobody, another},
		{"root of its own user namespace", squatter.Squatter{What: squatter.Answer, Capable: true}, ownNamespace(0), "in another user namespace"},
		{"nobody as root of its own", squatter.Squatter{What: squatter.Answer, Capable: true}, ownNamespace(nobody), another},
	} {
		t.Run(test.name, func(t *testing.T) {
			pid, stop := squat(t, test.squatter, test.as)
			defer stop()
			want := []string{test.want}
			if test.want != refuses {
				want = append(want, fmt.Sprintf(`process %d ("exe")`, pid))
			}
			began := time.Now()
			both := []*waiter{await(t.Context(), Request{}), await(t.Context(), Request{})}
			for i := range both {
				var lock *Lock
				select {
				case lock = <-both[i].lock:
				case lock = <-both[1-i].lock:
					both[0], both[1] = both[1], both[0]
				case <-time.After(20 * time.Second):
					t.Fatal("not passed by")
				}
				t.Logf("passed by after %v", time.Since(began).Round(time.Millisecond))
				if len(both[i].weak) == 0 {
					t.Fatal("nothing is reported")
				}
				err := <-both[i].weak
				for _, words := range want {
					if !strings.Contains(err.Error(), words) {
						t.Errorf("%v does not say %s", err, words)
					}
				}
				if i == 0 {
					both[1].waits(t)
				}
				release(t, lock)
			}
		})
	}
}

// TestKernelEarlierRelease has v0.1.0 hold its name: it is waited for as long as it runs.
func TestKernelEarlierRelease(t *testing.T) {
	netns.Require(t)
	pid, stop := squat(t, squatter.Squatter{What: squatter.Answer, Capable: true}, nil)
	w := await(t.Context(), Request{})
	w.owner(t, "v0.1.0", func(o Owner) bool { return o.PID == pid && o.Version == "v0.1.0" && o.Serving })
	w.waits(t)
	_, err := Try(Owner{}, unexpected(t))
	if o := heldBy(t, err); o.PID != os.Getpid() || o.Serving {
		t.Errorf("held by %+v, want the process that waits for v0.1.0", o)
	}
	stop()
	release(t, w.gets(t))

	_, stop = squat(t, squatter.Squatter{What: squatter.Silent, Capable: true}, nil) // such as a stopped one
	w = await(t.Context(), Request{})
	w.owner(t, "one that does not serve", func(o Owner) bool { return !o.Serving })
	w.waits(t)
	stop()
	release(t, w.gets(t))
}

// TestKernelWaitingIsCheap measures a holder and a process that waits for it.
func TestKernelWaitingIsCheap(t *testing.T) {
	netns.Require(t)
	lock := must(t)
	w := await(t.Context(), Request{})
	w.waits(t)
	uses(t, "a process that waits, with the holder,")
	release(t, lock)
	release(t, w.gets(t))
}

// uses checks that this process uses nearly no processor time, and prints how much.
func uses(t *testing.T, who string) {
	t.Helper()
	used := func() time.Duration {
		var usage unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
			t.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	began, before := time.Now(), used()
	time.Sleep(5 * time.Second)
	share := 100 * float64(used()-before) / float64(time.Since(began))
	t.Logf("%s uses %.2f %% of a core", who, share)
	if share > 5 {
		t.Errorf("%s uses %.1f %% of a core, want nearly nothing", who, share)
	}
}

// TestKernelConnecting has a process connect to the name all the time: the holder does not even notice.
func TestKernelConnecting(t *testing.T) {
	netns.Require(t)
	lock := must(t)
	squat(t, squatter.Squatter{What: squatter.Connect}, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}})
	uses(t, "the holder, while another process connects,")
	release(t, lock)
}

// TestKernelWithoutNFLOG has a kernel without NFLOG: the name is the lock, and that is reported.
func TestKernelWithoutNFLOG(t *testing.T) {
	netns.Require(t)
	without := Request{subsystem: 0x7e}
	first := await(t.Context(), without)
	lock := first.gets(t)
	if err := <-first.weak; !strings.Contains(err.Error(), "nfnetlink_log") {
		t.Errorf("got %v", err)
	}
	second := await(t.Context(), without)
	second.owner(t, "the first", func(o Owner) bool { return o.PID == os.Getpid() })
	second.waits(t)
	release(t, lock)
	release(t, second.gets(t))
}

// TestKernelWithoutRights checks that a process without CAP_NET_ADMIN gets an error that says so.
func TestKernelWithoutRights(t *testing.T) {
	netns.Require(t)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, without capabilities, ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
			result <- err
			return
		}
		_, err := Acquire(t.Context(), Request{})
		result <- err
	}()
	if err := <-result; err == nil || !strings.Contains(err.Error(), "NET_ADMIN") {
		t.Errorf("got %v", err)
	}
}
