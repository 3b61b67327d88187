//go:build linux

package standby

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
)

// uniqueName returns the name of a lock that no other test uses.
func uniqueName(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), os.Getpid()) }

// recorded sends what a Turn does to a channel.
func recorded(name string, events chan<- string) *Turn {
	return New(Config{
		Lock: name, Owner: netlock.Owner{Mode: "a"},
		Serve: func(ctx context.Context, waitingFor func() string) {
			events <- waitingFor()
			<-ctx.Done()
			events <- "served"
		},
		Begin: func(context.Context) { events <- "begin" },
	})
}

// TestTurnWaits checks the order of what a waiting proxy does: it serves health checks, stops that when the other one ends,
// begins, and only then lets the others run.
func TestTurnWaits(t *testing.T) {
	name := uniqueName(t)
	other, err := netlock.Try(name, netlock.Owner{Mode: "b", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 10)
	turn := recorded(name, events)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- turn.Run(ctx) }()
	go func() {
		ended <- turn.After(func(context.Context) error { events <- "after"; return nil })(ctx)
	}()
	if got := <-events; !strings.Contains(got, "mode b") {
		t.Errorf("waits for %q, want mode b", got)
	}
	select {
	case <-turn.Held():
		t.Error("held while another proxy holds the lock")
	default:
	}
	if err := other.Release(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"served", "begin", "after"} {
		if got := <-events; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	var held *netlock.HeldError
	if _, err := netlock.Try(name, netlock.Owner{}); !errors.As(err, &held) {
		t.Errorf("after Run: %v, want the lock held until Release", err)
	}
	if err := turn.Release(); err != nil {
		t.Fatal(err)
	}
	if lock, err := netlock.Try(name, netlock.Owner{}); err != nil {
		t.Errorf("after Release: %v", err)
	} else if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// TestTurnEndsWhileWaiting ends a proxy that waits: it must not begin.
func TestTurnEndsWhileWaiting(t *testing.T) {
	name := uniqueName(t)
	other, err := netlock.Try(name, netlock.Owner{Mode: "b"})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 10)
	turn := recorded(name, events)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- turn.Run(ctx) }()
	<-events // it waits
	cancel()
	if err := errors.Join(<-ended, turn.After(nil)(ctx), turn.Release(), other.Release()); err != nil {
		t.Error(err)
	}
	if got := <-events; got != "served" || len(events) > 0 {
		t.Errorf("after it served: %q, and %d events more", got, len(events))
	}
}

// TestWithoutLock checks that a lock that cannot be acquired, because its name is too long for a socket, does not prevent a
// proxy from serving, nor a cleanup.
func TestWithoutLock(t *testing.T) {
	name := strings.Repeat("x", 200)
	events := make(chan string, 10)
	turn := recorded(name, events)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- turn.Run(ctx) }()
	<-turn.Held()
	cancel()
	if err := errors.Join(<-ended, turn.Release()); err != nil {
		t.Error(err)
	}
	if got := <-events; got != "begin" || len(events) > 0 {
		t.Errorf("got %q and %d more events, want begin only", got, len(events))
	}
	if err := Alone(t.Context(), name, netlock.Owner{}, func() error { return errors.New("from do") }); err == nil || err.Error() != "from do" {
		t.Errorf("Alone returns %v, want the error of do", err)
	}
}

func TestAlone(t *testing.T) {
	name := uniqueName(t)
	calls := 0
	do := func() error {
		calls++
		return errors.New("from do")
	}
	if err := Alone(t.Context(), name, netlock.Owner{}, do); err == nil || err.Error() != "from do" || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
	other, err := netlock.Try(name, netlock.Owner{Mode: "b"})
	if err != nil {
		t.Fatal(err)
	}
	var held *netlock.HeldError
	if err := Alone(t.Context(), name, netlock.Owner{}, do); !errors.As(err, &held) || calls != 1 {
		t.Errorf("while another process holds the lock: %v, %d calls", err, calls)
	}
	if err := other.Release(); err != nil {
		t.Error(err)
	}
}
