package nf

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/cputime"
)

// TestCost checks that the processor time of a request counts as that of its caller, on whichever goroutine it runs.
func TestCost(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	socket, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	}()
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, ctx := range map[string]context.Context{"without an end": context.Background(), "bounded": bounded} {
		ctx, spent := cputime.Measure(ctx)
		finished, err := socket.Do(ctx, func() error {
			_, own := cputime.Measure(context.Background())
			for own() < 20*time.Millisecond { // it measures the thread, which is busy with this
			}
			return nil
		})
		if !finished || err != nil {
			t.Fatal(finished, err)
		}
		if cost := spent(); cost < 15*time.Millisecond {
			t.Errorf("context %s: a request that used at least 20ms cost %s", name, cost)
		}
	}
}
