package iptables

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nftwatch"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend is the iptables dataplane. It implements backend.Backend.
type Backend struct {
	opts     Options
	families []*family
	watch    *nftwatch.Watch // nil in the legacy variant: the kernel does not report its changes
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend that writes the given tables, one for each family to be served. The kernel's settings at this
// time decide whether invalid packets are dropped.
func New(opts Options, settings Settings, doors ...ipt.Tables) *Backend {
	b := &Backend{opts: opts}
	for _, door := range doors {
		b.families = append(b.families, newFamily(door, opts, settings))
	}
	return b
}

// Sync makes the tables equal to the plan.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []backend.Result {
	b.watch.Disarm()
	defer b.watch.Report()
	for _, f := range b.families { // before our own programs cause notifications
		f.drift.readChanges(ctx)
	}
	var results []backend.Result
	ran := false
	for _, f := range b.families {
		if len(families) > 0 && !slices.Contains(families, f.state.family) {
			continue
		}
		result := f.sync(ctx, p)
		results = append(results, result)
		ran = ran || result.Read || result.Rules > 0
	}
	for _, f := range b.families {
		if ran && !f.drift.nft() {
			f.drift.discardChanges(ctx) // the programs of one family take the lock that the other family watches
		}
	}
	return results
}

// Check reports whether chains or hooks were modified externally. In the nft variant the kernel reports which chains
// were written, and only those are read. In the legacy variant all are read if a program took the xtables lock or a
// table's size has changed; a change without either is found by polling.
func (b *Backend) Check(ctx context.Context) (drifts []backend.Drift, _ error) {
	var failed []error
	runtime.LockOSThread() // cputime measures this thread
	defer runtime.UnlockOSThread()
	b.watch.Arm()
	for _, f := range b.families {
		found, err := f.drift.check(ctx, 1/float64(len(b.families)))
		failed = append(failed, err)
		if found != nil {
			drifts = append(drifts, *found)
		}
		if f.drift.unfinished {
			b.watch.Report()
		}
	}
	return drifts, errors.Join(failed...)
}

// Modified returns the channel that asks for a Check, nil in the legacy variant: after another program's first
// transaction since the last one, and after every Sync, because others may have written meanwhile.
func (b *Backend) Modified() <-chan struct{} { return b.watch.Modified() }

// Cleanup removes our chains and the rules that lead to them, and those of another kube-proxy.
func (b *Backend) Cleanup(ctx context.Context) error {
	var failed []error
	for _, f := range b.families {
		f.state.forget()
		failed = append(failed, cleanup(ctx, f.state.door, f.state.family, f.renderer.can))
	}
	return errors.Join(failed...)
}

// Close leaves the tables in place.
func (b *Backend) Close() error {
	failed := []error{b.watch.Close()}
	for _, f := range b.families {
		failed = append(failed, f.state.door.Close())
	}
	return errors.Join(failed...)
}
