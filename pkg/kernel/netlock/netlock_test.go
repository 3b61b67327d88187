//go:build linux

package netlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fresh returns a name that no other test uses.
func fresh(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), os.Getpid()) }

// must takes the lock or fails the test.
func must(t *testing.T, name string, self Owner) *Lock {
	t.Helper()
	lock, err := Try(name, self)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// waiter runs Acquire in the background.
type waiter struct {
	lock     chan *Lock
	err      chan error
	reported chan Owner
}

func await(ctx context.Context, name string, self Owner) *waiter {
	w := &waiter{make(chan *Lock, 1), make(chan error, 1), make(chan Owner, 4*maxWaiting)}
	go func() {
		lock, err := Acquire(ctx, name, self, func(o Owner) { w.reported <- o })
		w.lock <- lock
		w.err <- err
	}()
	return w
}

func TestTryReportsTheOwner(t *testing.T) {
	name := fresh(t)
	lock := must(t, name, Owner{Mode: "nftables", Version: "v1.2.3"})
	_, err := Try(name, Owner{Mode: "iptables"})
	var held *HeldError
	if !errors.As(err, &held) || held.Owner != lock.owner {
		t.Fatalf("got %v, want a HeldError of %+v", err, lock.owner)
	}
	for _, words := range []string{fmt.Sprintf("process %d", os.Getpid()), "mode nftables", "version v1.2.3", "since 20"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not say %q", err, words)
		}
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	if err := must(t, name, Owner{}).Release(); err != nil {
		t.Error(err)
	}
}

func TestAcquireWaitsForEachOwner(t *testing.T) {
	name := fresh(t)
	first := must(t, name, Owner{Mode: "first"})
	second := await(t.Context(), name, Owner{Mode: "second"})
	if o := <-second.reported; o != first.owner {
		t.Errorf("got owner %+v, want %+v", o, first.owner)
	}
	select {
	case <-second.lock:
		t.Fatal("two have the lock")
	default:
	}
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	lock := <-second.lock
	if err := <-second.err; err != nil {
		t.Fatal(err)
	}
	third := await(t.Context(), name, Owner{Mode: "third"})
	if o := <-third.reported; o.Mode != "second" {
		t.Errorf("got owner %+v, want the second", o)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	if err := (<-third.lock).Release(); err != nil {
		t.Error(err)
	}
}

// TestMutualExclusion has more waiting processes than a holder keeps connections: each gets the lock once, alone.
func TestMutualExclusion(t *testing.T) {
	name := fresh(t)
	lock := must(t, name, Owner{})
	waiters := make([]*waiter, 3*maxWaiting)
	for i := range waiters {
		waiters[i] = await(t.Context(), name, Owner{Mode: fmt.Sprint(i)})
	}
	<-waiters[0].reported
	locks := make(chan *Lock)
	for _, w := range waiters {
		go func() { locks <- <-w.lock }()
	}
	for range waiters {
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
		lock = <-locks
		if lock == nil {
			t.Fatal("a wait ended without the lock")
		}
		select {
		case <-locks:
			t.Fatal("two have the lock")
		default:
		}
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	name := fresh(t)
	lock := must(t, name, Owner{})
	ctx, cancel := context.WithCancel(t.Context())
	w := await(ctx, name, Owner{})
	<-w.reported
	cancel()
	if err := <-w.err; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// TestUnresponsiveOwner checks that Acquire waits for a holder that never answers, such as a stopped process.
func TestUnresponsiveOwner(t *testing.T) {
	name := fresh(t)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@" + name})
	if err != nil {
		t.Fatal(err)
	}
	w := await(t.Context(), name, Owner{})
	if o := <-w.reported; o != (Owner{PID: os.Getpid()}) {
		t.Errorf("got owner %+v, want no more than the process id", o)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if err := (<-w.lock).Release(); err != nil {
		t.Error(err)
	}
}

// TestOccupiedName checks that a name that is bound and not listened on is an error.
func TestOccupiedName(t *testing.T) {
	name := fresh(t)
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		t.Fatal(err)
	}
	lock, err := Acquire(t.Context(), name, Owner{}, func(o Owner) { t.Errorf("waits for %+v", o) })
	if lock != nil || err == nil || !strings.Contains(err.Error(), "without listening") {
		t.Errorf("got %v, %v", lock, err)
	}
}

// TestHolder checks that Holder returns the owner and does not take the lock.
func TestHolder(t *testing.T) {
	name := fresh(t)
	if owner, held, err := Holder(name); held || err != nil {
		t.Errorf("without a lock: %+v, %t, %v", owner, held, err)
	}
	lock := must(t, name, Owner{Mode: "nftables"})
	if owner, held, err := Holder(name); owner != lock.owner || !held || err != nil {
		t.Errorf("got %+v, %t, %v, want %+v", owner, held, err, lock.owner)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
