package proxy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// TestAfterSync waits for a sync that succeeds in a family, and calls the function once.
func TestAfterSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := 0
		a := NewAfterSync(func(context.Context) { done++ })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		a.Synced(&Sync{Results: []backend.Result{{Err: errors.New("no")}}})
		if synctest.Wait(); done != 0 {
			t.Error("called after a failed sync")
		}
		for range 3 {
			a.Synced(&Sync{Results: []backend.Result{{Err: errors.New("no")}, {}}})
		}
		if synctest.Wait(); done != 1 {
			t.Errorf("called %d times, want once", done)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
