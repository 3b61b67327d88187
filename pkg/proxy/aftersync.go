package proxy

import (
	"context"
	"sync"
)

// AfterSync is an Observer that calls a function after the first sync that succeeded in a family.
type AfterSync struct {
	Ignore
	do     func(ctx context.Context)
	once   sync.Once
	synced chan struct{}
}

var _ Observer = (*AfterSync)(nil)

// NewAfterSync returns an AfterSync whose Run calls do.
func NewAfterSync(do func(ctx context.Context)) *AfterSync {
	return &AfterSync{do: do, synced: make(chan struct{})}
}

// Synced implements [Observer].
func (a *AfterSync) Synced(s *Sync) {
	if len(s.InForce()) > 0 {
		a.once.Do(func() { close(a.synced) })
	}
}

// Run calls the function after that sync, and returns when ctx ends.
func (a *AfterSync) Run(ctx context.Context) error {
	select {
	case <-a.synced:
		a.do(ctx)
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}
