//go:build linux

package app

import (
	"context"
	"sync"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
)

// afterSync does something once the rules are in force for the first time. It is a worker.
type afterSync struct {
	do     func(ctx context.Context)
	once   sync.Once
	synced chan struct{}
}

func newAfterSync(do func(ctx context.Context)) *afterSync {
	return &afterSync{do: do, synced: make(chan struct{})}
}

// Synced notes the first sync that went well.
func (a *afterSync) Synced(s *proxy.Sync) {
	if s.Err() == nil {
		a.once.Do(func() { close(a.synced) })
	}
}

// Run does it after that sync, and then waits for ctx.
func (a *afterSync) Run(ctx context.Context) error {
	select {
	case <-a.synced:
		a.do(ctx)
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}
