package iptables

import (
	"context"
	"errors"
	"net/netip"
	"runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend is the iptables dataplane. It implements backend.Backend.
type Backend struct {
	opts     Options
	families []*family
}

var _ backend.Backend = (*Backend)(nil)

// Open makes a backend for the network namespace that it is called in, in the variant of iptables that the node uses.
func Open(ctx context.Context, opts Options, settings Settings, families ...cluster.Family) (*Backend, error) {
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return nil, err
	}
	return openVariant(ctx, variant, opts, settings, families)
}

func openVariant(ctx context.Context, variant ipt.Variant, opts Options, settings Settings, families []cluster.Family) (*Backend, error) {
	var doors []ipt.Tables
	for _, family := range families {
		of := ipt.IPv4
		if family == cluster.IPv6 {
			of = ipt.IPv6
		}
		door, err := ipt.Open(ctx, of, variant)
		if err != nil {
			return nil, errors.Join(err, New(opts, settings, doors...).Close())
		}
		doors = append(doors, door)
	}
	return New(opts, settings, doors...), nil
}

// New makes a backend that writes the given tables, one for each family to be served. Whether invalid packets are dropped
// is decided here, by the settings of the kernel.
func New(opts Options, settings Settings, doors ...ipt.Tables) *Backend {
	b := &Backend{opts: opts}
	for _, door := range doors {
		b.families = append(b.families, newFamily(door, opts, settings))
	}
	return b
}

// CleanupAll removes what this backend, or an earlier program in its place, wrote in either variant of iptables. If there
// is nothing of that, iptables need not be installed.
func CleanupAll(ctx context.Context, opts Options, settings Settings) error {
	holding, err := ipt.Holding(ctx, tables(), func(table, chain string) bool { return chainName{table, chain}.ours() })
	failed := []error{err}
	for _, variant := range holding {
		b, err := openVariant(ctx, variant, opts, settings, []cluster.Family{cluster.IPv4, cluster.IPv6})
		if err == nil {
			err = errors.Join(b.Cleanup(ctx), b.Close())
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Prepare does what a backend with these options needs a privileged process for: it makes node ports on 127.0.0.0/8 possible,
// and safe, if a plan with these options serves any.
func Prepare(ctx context.Context, opts Options, settings Settings, planning *plan.Options) error {
	loopback := &cluster.Node{Interfaces: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}}
	p := plan.Compute(&cluster.Snapshot{Node: loopback}, planning, nil)
	w := newWriter(cluster.IPv4, p.Node, opts, capabilities{})
	if !w.localnet() {
		return nil
	}
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return err
	}
	door, err := ipt.Open(ctx, ipt.IPv4, variant)
	if err != nil {
		return err
	}
	a := &applier{ctx: ctx, door: door, writer: w, settings: settings}
	return errors.Join(a.apply(&patch{localnet: true, hooks: localnetHooks()}), door.Close())
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
