package nftables

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend is the nf_tables dataplane. It implements backend.Backend.
type Backend struct {
	*keeper.Keeper
	families []*family
	notices  keeper.Notices
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ keeper.Rules    = (*family)(nil)
)

// share is the part of a core that comparing what others wrote may use.
const share = 0.05

// New returns a backend that writes the given tables, one for each family to be served. notices are those about these tables.
func New(opts Options, notices keeper.Notices, tables ...nft.Table) *Backend {
	b := &Backend{notices: notices}
	var rules []keeper.Rules
	for _, table := range tables {
		f := newFamily(opts, table)
		b.families, rules = append(b.families, f), append(rules, f)
	}
	b.Keeper = keeper.New(notices, share, rules...)
	return b
}

// family returns what is known of a family, for any goroutine: the schema may change meanwhile. It is nil without one.
func (b *Backend) family(is cluster.Family) *family {
	for _, f := range b.families {
		if f.table.Family() == dialectOf(is).number {
			return f
		}
	}
	return nil
}

// ReadEarly is part of [backend.Backend]. It reads the tables of all families at the same time.
func (b *Backend) ReadEarly(ctx context.Context) {
	b.Forget() // what was written before
	var all sync.WaitGroup
	for _, f := range b.families {
		all.Go(func() {
			if found, err := read(ctx, f.table, f.schema); err == nil { // the first Sync returns the error
				f.found = found
			}
		})
	}
	all.Wait()
}

// Check reports whether our tables were modified externally, and continues to remove clients of endpoints that left.
func (b *Backend) Check(ctx context.Context) ([]backend.Drift, error) {
	var forgot error
	for _, f := range b.families {
		if f.have != nil { // or else the next Sync searches all maps
			o := output{ctx: ctx, table: f.table, batch: f.batch}
			forgot = errors.Join(forgot, wrap(f.schema.family, f.forgetting.part(&o, f.schema, &f.have.holds.content)))
		}
	}
	drifts, err := b.Keeper.Check(ctx)
	if b.CheckSoon() {
		b.notices.Report()
	}
	return drifts, errors.Join(forgot, err)
}

// CheckSoon is part of [backend.Backend]: Check has clients left to remove.
func (b *Backend) CheckSoon() bool {
	return slices.ContainsFunc(b.families, func(f *family) bool { return f.have != nil && len(f.forgetting) > 0 })
}

// Family implements [keeper.Rules].
func (f *family) Family() cluster.Family { return f.schema.family }

// Forget implements [keeper.Rules].
func (f *family) Forget() { f.have, f.found = nil, nil }

// syncPass is one family's part of a Sync. It implements [keeper.Pass].
type syncPass struct {
	applier
	of     *family
	result backend.Result
}

// Begin implements [keeper.Rules].
func (f *family) Begin(ctx context.Context, p *plan.Plan, touched keeper.Touched) keeper.Pass {
	s := &syncPass{of: f, result: backend.Result{Family: f.schema.family, Read: f.have == nil}}
	s.forgetting, s.refusing = &f.forgetting, &f.refusing
	s.output, s.schema, s.buffer = output{ctx: ctx, table: f.table, batch: f.batch}, f.schema, newBuffer()
	have, found := f.have, f.found
	f.have, f.found = nil, nil // have is replaced on success
	if !touched.Empty() {
		found = nil
	}
	s.do(func() {
		s.patch, s.err = f.patch(ctx, have, found, p)
		s.schema, s.chains = f.schema, newWriter(f.schema, p.Node, f.opts)
	})
	return s
}

// do does a step unless an earlier one failed, and measures it.
func (s *syncPass) do(step func()) {
	start := time.Now()
	if s.err == nil {
		step()
	}
	s.result.Duration += time.Since(start)
}

// Size implements [keeper.Pass].
func (s *syncPass) Size() (n int) {
	if s.err != nil {
		return 0
	}
	n = len(s.patch.addChains) + len(s.patch.rewriteChains) + len(s.patch.strays)
	for _, port := range s.patch.delSticky { // all clients are deleted with its two maps
		n += 2 * port.size()
	}
	for range s.patch.ops() {
		n++
	}
	return n
}

// Put implements [keeper.Pass]: new packets are handled according to the plan after it. It writes the additions of the patch in
// transactions that each leave a correct dataplane: chains and elements are complete before anything leads to them.
func (s *syncPass) Put() {
	s.do(func() {
		s.take(s.prepare, s.change)
		s.err = s.patch.refused(s.err)
	})
	s.do(func() { s.take(s.hook, s.attach) })
}

// Finish implements [keeper.Pass]: it removes what the patch and packets no longer use, and takes the fingerprint of the result.
func (s *syncPass) Finish() {
	s.do(func() { s.take(s.settle, s.removeUnreachable, s.forget, s.fingerprint) })
}

// Transactions implements [keeper.Pass]. One that fails may still be made later, and is then another program's.
func (s *syncPass) Transactions() (n int, certain bool) { return int(s.transactions), true }

// again is when to write again what another program may have changed while it was written.
const again = time.Second

// End implements [keeper.Pass]. If another program wrote, chains may have been changed before the fingerprint was taken: the next
// process must not take them for right, and the next Sync writes all again.
func (s *syncPass) End(alone bool) backend.Result {
	s.do(func() {
		switch {
		case !s.fingerprinted:
		case alone:
			s.record()
		default:
			s.patch.result.holds.skeleton, s.result.Again = nil, again
		}
	})
	if s.err == nil {
		s.of.have = s.patch.result
	}
	s.result.Elements, s.result.Rules, s.result.Err = s.elements, s.rules, s.err
	return s.result
}

// patch returns the patch for a plan, from the table's state or from what was read. It reads the table if neither is known, or
// if it gets other sets.
func (f *family) patch(ctx context.Context, have *state, found *reading, p *plan.Plan) (_ *patch, err error) {
	last := nothing(f.schema)
	if have != nil {
		last = have.holds
	}
	want := f.opts.render(p, last)
	if want.schema != f.schema {
		f.use(ctx, want)
		have, found = nil, nil
	}
	if have != nil {
		return diff(have, want), nil
	}
	if found == nil {
		if found, err = read(ctx, f.table, f.schema); err != nil {
			return nil, err
		}
	}
	return diff(found.state(&want.content), want), nil
}

// use makes the table have the sets of another schema, which were not read.
func (f *family) use(ctx context.Context, want *desired) {
	before := f.schema.counting
	f.schema = want.schema
	f.counts.Store(int32(want.schema.counting))
	if want.schema.counting == before {
		return
	}
	klog.FromContext(ctx).Info("Counting fewer connections, because counters for all of them need too much memory; set --connection-counters to count them all the same",
		"family", f.schema.family, "counted", want.schema.counting, "counters", want.services+want.endpoints, "limit", f.opts.Counters.Most)
}

// Cleanup removes the tables.
func (b *Backend) Cleanup(ctx context.Context) error {
	b.Forget()
	var failed []error
	for _, f := range b.families {
		failed = append(failed, wrap(f.schema.family, removeTable(ctx, f.table)))
	}
	return errors.Join(failed...)
}

// Close leaves the tables in place.
func (b *Backend) Close() error {
	failed := []error{b.Keeper.Close()}
	for _, f := range b.families {
		failed = append(failed, wrap(f.schema.family, f.table.Close()))
	}
	return errors.Join(failed...)
}
