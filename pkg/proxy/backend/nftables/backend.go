package nftables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend is the nf_tables dataplane. It implements backend.Backend.
type Backend struct {
	opts     Options
	families []*family
	drift    *drift
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend that writes the given tables, one for each family to be served.
func New(opts Options, tables ...nft.Table) *Backend {
	b := &Backend{opts: opts}
	for _, table := range tables {
		b.families = append(b.families, newFamily(table, opts.Counters.Counting))
	}
	b.drift = newDrift(b.families)
	return b
}

// Sync makes the tables equal to the plan. Removals, which wait for packets in progress, come after the additions of
// both families.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []backend.Result {
	var passes []*syncPass
	results := make([]backend.Result, 0, len(b.families))
	alone := b.drift.sync(ctx, func() (transactions uint32) {
		for _, f := range b.families {
			if len(families) == 0 || slices.Contains(families, f.schema.family) {
				passes = append(passes, f.put(ctx, p, b.opts))
			}
		}
		for _, s := range passes {
			results = append(results, s.finish())
			transactions += s.transactions
		}
		return transactions
	})
	for i, s := range passes {
		if !s.trust(alone) {
			results[i].Again = doubtRetry
		}
	}
	return results
}

// Check reports whether our tables were modified externally. The next Sync reads such a table.
func (b *Backend) Check(ctx context.Context) ([]backend.Drift, error) { return b.drift.check(ctx) }

// syncPass is one family's part of a Sync.
type syncPass struct {
	applier
	of     *family
	result backend.Result
}

// put changes a table so that new packets are handled according to the plan.
func (f *family) put(ctx context.Context, p *plan.Plan, opts Options) *syncPass {
	start := time.Now()
	s := &syncPass{of: f, result: backend.Result{Family: f.schema.family, Read: f.have == nil}}
	s.output = output{ctx: ctx, table: f.table, batch: f.batch}
	have := f.have
	f.have = nil // replaced on success
	if s.patch, s.result.Err = f.patch(ctx, have, p, opts); s.result.Err == nil {
		s.schema, s.chains = f.schema, newWriter(f.schema, p.Node, opts)
		s.result.Err = s.put()
	}
	s.result.Duration = time.Since(start)
	return s
}

// patch returns the patch for a plan. It reads the table if its content is not known, or is to count less.
func (f *family) patch(ctx context.Context, have *state, p *plan.Plan, opts Options) (_ *patch, err error) {
	for {
		if have == nil {
			if have, err = read(ctx, f.table, f.schema); err != nil {
				return nil, err
			}
		}
		want := render(p, opts, have.holds)
		level := max(f.schema.counting, opts.Counters.Allow(want.counters))
		if level == f.schema.counting {
			return diff(have, want), nil
		}
		f.count(ctx, level, want.counters, opts.Counters)
		have = nil
	}
}

// count makes the elements count at another level, in other sets. The caller reads the table anew.
func (f *family) count(ctx context.Context, level backend.Counting, needed backend.Counters, limits backend.CounterLimits) {
	if level > limits.Counting {
		klog.FromContext(ctx).Info("Counting fewer connections, because counters for all of them need too much memory; set --connection-counters to count them all the same",
			"family", f.schema.family, "counted", level, "counters", needed.At(limits.Counting), "bytes", needed.At(limits.Counting)*limits.Size, "limit", limits.Limit)
	}
	f.schema = newSchema(f.schema.family, level)
	f.counts.Store(int32(level))
}

// finish removes what is no longer used, and returns the result.
func (s *syncPass) finish() backend.Result {
	start := time.Now()
	if s.result.Err == nil {
		s.result.Err = s.tidyUp()
	}
	if s.result.Err == nil {
		s.of.have = s.patch.result
	}
	s.result.Err = wrap(s.result.Family, s.result.Err)
	s.result.Duration += time.Since(start)
	s.result.Elements, s.result.Rules = s.elements, s.rules
	return s.result
}

// doubtRetry is when to write again what another program may have changed while it was written.
const doubtRetry = time.Second

// trust decides whether the fingerprint that was recorded is that of our rules alone. alone reports that nobody else wrote
// during the Sync. Otherwise another program may have changed a chain before the fingerprint was taken: the next Sync writes
// all chains again, and if they have the same digests then, they are ours.
func (s *syncPass) trust(alone bool) bool {
	if s.result.Err != nil || !s.recorded {
		return true
	}
	have, doubted := s.of.have, s.of.doubted
	s.of.doubted = nil
	if alone || doubted != nil && maps.Equal(doubted, have.objects) {
		return true
	}
	s.of.doubted = have.objects
	state := *have
	state.doubtful = true
	s.of.have = &state
	return false
}

// Cleanup removes the tables.
func (b *Backend) Cleanup(ctx context.Context) error {
	b.drift.stop()
	var failed []error
	for _, f := range b.families {
		f.have = nil
		failed = append(failed, wrap(f.schema.family, removeTable(ctx, f.table)))
	}
	return errors.Join(failed...)
}

// Close leaves the tables in place.
func (b *Backend) Close() error {
	b.drift.stop()
	var failed []error
	for _, f := range b.families {
		failed = append(failed, wrap(f.schema.family, f.table.Close()))
	}
	return errors.Join(failed...)
}
