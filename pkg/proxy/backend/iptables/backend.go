package iptables

import (
	"context"
	"errors"
	"runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend is the iptables dataplane. It implements backend.Backend.
type Backend struct {
	opts     Options
	families []*family
}

var _ backend.Backend = (*Backend)(nil)

// New makes a backend that writes the given tables, one for each family to be served. Whether invalid packets are dropped
// is decided here, by the settings of the kernel.
func New(opts Options, settings Settings, doors ...ipt.Tables) *Backend {
	b := &Backend{opts: opts}
	for _, door := range doors {
		b.families = append(b.families, newFamily(door, opts, settings))
	}
	return b
}

// Sync makes the tables hold what the plan says. A port of a Service that iptables refuses stays left out until it changes,
// and is tried again now and then; its error is returned each time that it was tried.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan) []backend.Result {
	for _, f := range b.families { // before our own programs are heard
		f.drift.hear()
	}
	results := make([]backend.Result, len(b.families))
	ran := false
	for i, f := range b.families {
		results[i] = f.sync(ctx, p)
		ran = ran || results[i].Read || results[i].Rules > 0
	}
	for _, f := range b.families {
		if ran && !f.drift.nft() {
			f.drift.ignore() // one family's programs take the lock that the other listens to
		}
	}
	return results
}

// Check reports whether somebody else changed our chains or hooks. In the nft variant the kernel reports which chains were
// written, and only those are looked at. In the legacy variant all are, if a program took the xtables lock or a table's size
// is another; a change of neither is found as soon as the cost of looking at all of them allows.
func (b *Backend) Check(ctx context.Context) (drifts []backend.Drift, _ error) {
	var failed []error
	runtime.LockOSThread() // whose processor time is what a look costs
	defer runtime.UnlockOSThread()
	for _, f := range b.families {
		found, err := f.drift.check(ctx, 1/float64(len(b.families)))
		failed = append(failed, err)
		if found != nil {
			drifts = append(drifts, *found)
		}
	}
	return drifts, errors.Join(failed...)
}

// Cleanup removes our chains and the rules that lead to them, and those of another program in our place.
func (b *Backend) Cleanup(ctx context.Context) error {
	var failed []error
	for _, f := range b.families {
		f.state.forget()
		failed = append(failed, cleanup(ctx, f.state.door, f.state.family, f.renderer.can))
	}
	return errors.Join(failed...)
}

// Close leaves the tables as they are.
func (b *Backend) Close() error {
	var failed []error
	for _, f := range b.families {
		failed = append(failed, f.state.door.Close())
	}
	return errors.Join(failed...)
}
