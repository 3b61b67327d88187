//go:build linux

package netlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// waiter runs Acquire in the background.
type waiter struct {
	lock     chan *Lock
	err      chan error
	reported chan Owner
}

func await(ctx context.Context, r Request) *waiter {
	w := &waiter{make(chan *Lock, 1), make(chan error, 1), make(chan Owner, 100)}
	r.Waiting = func(o Owner) { w.reported <- o }
	go func() {
		lock, err := Acquire(ctx, r)
		w.lock <- lock
		w.err <- err
	}()
	return w
}

// owner waits until an owner is reported that has what is wanted.
func (w *waiter) owner(t *testing.T, what string, wanted func(Owner) bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case o := <-w.reported:
			if wanted(o) {
				return
			}
		case lock := <-w.lock:
			t.Fatalf("got the lock %v instead of waiting for %s", lock, what)
		case <-limit:
			t.Fatalf("does not wait for %s", what)
		}
	}
}

// waits checks that nobody else gets the lock for some attempts.
func (w *waiter) waits(t *testing.T) {
	t.Helper()
	select {
	case <-w.lock:
		t.Fatal("two have the lock")
	case <-time.After(3 * pause):
	}
}

// gets returns the lock.
func (w *waiter) gets(t *testing.T) *Lock {
	t.Helper()
	select {
	case lock := <-w.lock:
		if err := <-w.err; err != nil {
			t.Fatal(err)
		}
		return lock
	case <-time.After(time.Minute):
		t.Fatal("no lock after a minute")
		return nil
	}
}

// must takes the lock or fails the test.
func must(t *testing.T) *Lock {
	t.Helper()
	lock, err := Try(Owner{})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// release releases the lock.
func release(t *testing.T, l *Lock) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// heldBy returns the owner in a HeldError.
func heldBy(t *testing.T, err error) Owner {
	t.Helper()
	var held *HeldError
	if !errors.As(err, &held) {
		t.Fatalf("got %v, want a HeldError", err)
	}
	return held.Owner
}
