// Package source names what feeds the pipeline: something that learns what the cluster looks like and tells
// a cluster.Builder. Its folders hold the sources there are.
package source

import (
	"context"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Source feeds a Builder. A constructor builds one, Run acts.
type Source interface {
	// Run tells the builder what there is and every change of it, until ctx ends. Nothing that can pass by
	// itself, a lost connection or an unreadable file, ends it; it returns nil when ctx ended.
	Run(ctx context.Context, b *cluster.Builder) error
	// Complete is closed when the builder has been told everything that existed at the start. Before that
	// the picture is partial, and acting on it would cut connections.
	Complete() <-chan struct{}
}
