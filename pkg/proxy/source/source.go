// Package source defines the input of the pipeline: a Source watches part of the cluster's state and updates a
// cluster.Builder. It has what its subpackages share, and the source of this machine's addresses.
package source

import (
	"context"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Source updates a Builder. Constructors have no side effects; Run does the work.
type Source interface {
	// Run passes the current state and every change to the builder, until ctx ends; then it returns nil. It does not
	// return because of temporary failures such as a lost connection or an unreadable file.
	Run(ctx context.Context, b *cluster.Builder) error
	// Complete returns a channel that is closed when the builder has received everything that existed at the start.
	// Before that the state is partial, and programming it would cut connections.
	Complete() <-chan struct{}
}

// AllComplete reports whether all sources are complete.
func AllComplete(sources []Source) bool {
	for _, s := range sources {
		select {
		case <-s.Complete():
		default:
			return false
		}
	}
	return true
}
