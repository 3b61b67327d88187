//go:build linux

package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// TestAfterSync waits for a sync that goes well, and acts once.
func TestAfterSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := 0
		a := newAfterSync(func(context.Context) { done++ })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		a.Synced(&proxy.Sync{Results: []backend.Result{{Err: errors.New("no")}}})
		if synctest.Wait(); done != 0 {
			t.Error("done before anything is in force")
		}
		for range 3 {
			a.Synced(&proxy.Sync{})
		}
		if synctest.Wait(); done != 1 {
			t.Errorf("done %d times, want once", done)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
