//go:build linux

package netlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

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
	lock, err := Acquire(t.Context(), Request{Self: Owner{Mode: "nftables", Version: "v1.2.3"}, Serving: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Try(Owner{Mode: "iptables"})
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
	holder, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.claim(t.Context(), &Request{subsystem: unix.NFNL_SUBSYS_ULOG}); err != nil {
		t.Fatal(err)
	}
	w := await(t.Context(), Request{})
	w.owner(t, "one that does not answer", func(o Owner) bool { return o == Owner{} })
	w.waits(t)
	if err := holder.close(); err != nil {
		t.Error(err)
	}
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

// TestKernelWithoutNFLOG has a kernel without NFLOG: the error says what to do.
func TestKernelWithoutNFLOG(t *testing.T) {
	netns.Require(t)
	if _, err := Acquire(t.Context(), Request{subsystem: 0x7e}); err == nil || !strings.Contains(err.Error(), "load the kernel's module nfnetlink_log") {
		t.Errorf("got %v", err)
	}
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
