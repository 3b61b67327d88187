package proxy

import (
	"context"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Observer follows the work of a Proxy. The loop's goroutine calls all methods but Run, and they must not block; plans and syncs must not be
// modified. An Observer embeds [Ignore], and overrides what it needs.
type Observer interface {
	// Queued reports that the cluster has changed and a sync is due.
	Queued(at time.Time)
	// Planned reports the plan that is about to be programmed.
	Planned(p *plan.Plan)
	// Synced reports a sync that has finished.
	Synced(s *Sync)
	// Drifted reports that the rules were modified externally. A sync follows.
	Drifted(d backend.Drift)
	// Run does the work that takes time, until ctx ends. If it returns earlier, the process ends. The Proxy does not call it.
	Run(ctx context.Context) error
}

// Ignore is an Observer that ignores everything.
type Ignore struct{}

var _ Observer = Ignore{}

// Queued implements [Observer].
func (Ignore) Queued(time.Time) {}

// Planned implements [Observer].
func (Ignore) Planned(*plan.Plan) {}

// Synced implements [Observer].
func (Ignore) Synced(*Sync) {}

// Drifted implements [Observer].
func (Ignore) Drifted(backend.Drift) {}

// Run implements [Observer].
func (Ignore) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
