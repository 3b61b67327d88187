//go:build linux

package takeover

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// recorded sends what a Turn does to a channel.
func recorded(events chan<- string) *Turn {
	return NewTurn(TurnConfig{
		Owner: netlock.Owner{Mode: "a"}, Serving: func() bool { return true },
		Serve: func(ctx context.Context, holder func() netlock.Owner) {
			events <- "serves beside " + holder().Mode
			<-ctx.Done()
			events <- "served"
		},
		Waiting: func(reason string, waiting bool) { events <- fmt.Sprint(reason, " ", waiting) },
		Begin:   func(context.Context) { events <- "begin" },
	})
}

// expect checks the next events.
func expect(t *testing.T, events <-chan string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if got := <-events; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// TestKernelTurnWaits checks the order of what a waiting proxy does: it serves HTTP, stops that when the other one ends,
// begins, and only then lets the others run.
func TestKernelTurnWaits(t *testing.T) {
	netns.Require(t)
	other, err := netlock.Try(netlock.Owner{Mode: "b"})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 10)
	turn := recorded(events)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- turn.Run(ctx) }()
	expect(t, events, "other_proxy false", "other_proxy_not_serving false", "other_proxy true", "other_proxy_not_serving true", "serves beside b")
	go func() {
		ended <- turn.After(func(context.Context) error { events <- "after"; return nil })(ctx)
	}()
	select {
	case <-turn.Held():
		t.Error("held while another proxy holds the lock")
	default:
	}
	if err := other.Release(); err != nil {
		t.Fatal(err)
	}
	expect(t, events, "served", "other_proxy false", "other_proxy_not_serving false", "begin", "after")
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if owner, held, err := netlock.Holder(); !held || owner.Mode != "a" || !owner.Serving {
		t.Errorf("after Run: %+v, %t, %v, want the lock held until Release", owner, held, err)
	}
	if err := turn.Release(); err != nil {
		t.Fatal(err)
	}
	if owner, held, err := netlock.Holder(); held || err != nil {
		t.Errorf("after Release: %+v, %v", owner, err)
	}
}

// TestKernelTurnEndsWhileWaiting ends a proxy that waits: it must not begin.
func TestKernelTurnEndsWhileWaiting(t *testing.T) {
	netns.Require(t)
	other, err := netlock.Try(netlock.Owner{Mode: "b"})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 10)
	turn := recorded(events)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- turn.Run(ctx) }()
	expect(t, events, "other_proxy false", "other_proxy_not_serving false", "other_proxy true", "other_proxy_not_serving true", "serves beside b")
	cancel()
	if err := errors.Join(<-ended, turn.After(nil)(ctx), turn.Release(), other.Release()); err != nil {
		t.Error(err)
	}
	expect(t, events, "served", "other_proxy false", "other_proxy_not_serving false")
	if len(events) > 0 {
		t.Errorf("%q, and %d events more", <-events, len(events))
	}
}

// TestKernelWithoutLock checks that a lock that cannot be acquired, without CAP_NET_ADMIN, does not prevent a proxy from
// serving, nor a cleanup.
func TestKernelWithoutLock(t *testing.T) {
	netns.Require(t)
	events := make(chan string, 10)
	turn := recorded(events)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, without capabilities, ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		ended <- unix.Capset(&header, &make([]unix.CapUserData, 2)[0])
		ended <- Alone(ctx, netlock.Owner{}, func() error { return errors.New("from do") })
		ended <- turn.Run(ctx)
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || err.Error() != "from do" {
		t.Errorf("Alone returns %v, want the error of do", err)
	}
	<-turn.Held()
	cancel()
	if err := errors.Join(<-ended, turn.Release()); err != nil {
		t.Error(err)
	}
	expect(t, events, "other_proxy false", "other_proxy_not_serving false", "other_proxy false", "other_proxy_not_serving false", "begin")
}

func TestKernelAlone(t *testing.T) {
	netns.Require(t)
	calls := 0
	do := func() error {
		calls++
		return errors.New("from do")
	}
	if err := Alone(t.Context(), netlock.Owner{}, do); err == nil || err.Error() != "from do" || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
	other, err := netlock.Try(netlock.Owner{Mode: "b"})
	if err != nil {
		t.Fatal(err)
	}
	var held *netlock.HeldError
	err = Alone(t.Context(), netlock.Owner{}, do)
	if !errors.As(err, &held) || !strings.Contains(err.Error(), "mode b") || calls != 1 {
		t.Errorf("while another process holds the lock: %v, %d calls", err, calls)
	}
	if err := other.Release(); err != nil {
		t.Error(err)
	}
}
