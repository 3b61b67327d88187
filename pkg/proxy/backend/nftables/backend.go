package nftables

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nftwatch"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend is the nf_tables dataplane. It implements backend.Backend.
type Backend struct {
	opts     Options
	families []*family
	drift    *drift
	watch    *nftwatch.Watch // nil with tables that are not the kernel's
}

var (
	_ backend.Backend     = (*Backend)(nil)
	_ backend.EarlyReader = (*Backend)(nil)
)

// New returns a backend that writes the given tables, one for each family to be served.
func New(opts Options, tables ...nft.Table) *Backend {
	b := &Backend{opts: opts}
	for _, table := range tables {
		b.families = append(b.families, newFamily(table, opts.Counters.Counting))
	}
	b.drift = newDrift(b.families)
	return b
}

// ReadEarly implements [backend.EarlyReader]. It reads the tables of all families at the same time.
func (b *Backend) ReadEarly(ctx context.Context) {
	b.drift.readEarly(ctx, func() {
		var all sync.WaitGroup
		for _, f := range b.families {
			all.Go(func() {
				if found, err := read(ctx, f.table, f.schema); err == nil { // the first Sync returns the error
					f.found = found
				}
			})
		}
		all.Wait()
	})
}

// Sync makes the tables equal to the plan. Removals, which wait for packets in progress, come after the additions of
// both families.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []backend.Result {
	b.watch.Disarm() // the kernel would send us every element of our own writes
	defer b.watch.Report()
	var passes []*syncPass
	results := make([]backend.Result, 0, len(b.families))
	b.drift.sync(ctx, func() (transactions uint32) {
		for _, f := range b.families {
			if len(families) == 0 || slices.Contains(families, f.schema.family) {
				passes = append(passes, f.put(ctx, p, b.opts))
			}
		}
		for _, s := range passes {
			s.finish()
			transactions += s.transactions
		}
		return transactions
	}, func(alone bool) (transactions uint32) {
		for _, s := range passes {
			before := s.transactions
			results = append(results, s.trust(alone))
			transactions += s.transactions - before
		}
		return transactions
	})
	return results
}

// Check reports whether our tables were modified externally. The next Sync reads such a table.
func (b *Backend) Check(ctx context.Context) ([]backend.Drift, error) {
	forgot := b.forget(ctx)
	b.watch.Arm()
	drifts, err := b.drift.check(ctx)
	if b.drift.unfinished() || b.forgetting() {
		b.watch.Report()
	}
	return drifts, errors.Join(forgot, err)
}

// forget continues to remove clients of endpoints that left.
func (b *Backend) forget(ctx context.Context) (err error) {
	if !b.forgetting() {
		return nil
	}
	b.drift.during(ctx, func() (transactions uint32) {
		for _, f := range b.families {
			if f.have == nil {
				continue // the next Sync searches all maps
			}
			o := output{ctx: ctx, table: f.table, batch: f.batch}
			err = errors.Join(err, wrap(f.schema.family, f.forgetting.part(&o, f.schema, &f.have.holds.content)))
			transactions += o.transactions
		}
		return transactions
	})
	return err
}

// forgetting reports whether Check removes clients of endpoints that left and has parts left.
func (b *Backend) forgetting() bool {
	return slices.ContainsFunc(b.families, func(f *family) bool { return f.have != nil && len(f.forgetting) > 0 })
}

// Modified returns the channel that asks for a Check: after another program's first transaction since the last one, and
// after every Sync, because others may have written meanwhile.
func (b *Backend) Modified() <-chan struct{} { return b.watch.Modified() }

// Auditing reports whether Check has parts left: it compares elements, or removes clients of endpoints that left.
func (b *Backend) Auditing() bool { return b.drift.auditing != noCause || b.forgetting() }

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
	s.forgetting = &f.forgetting
	s.output, s.schema, s.space = output{ctx: ctx, table: f.table, batch: f.batch}, f.schema, newSpace()
	have, found := f.have, f.found
	f.have, f.found = nil, nil // have is replaced on success
	if s.mend(f.altered) != nil {
		have, s.result.Read = nil, true
	}
	f.altered = nil
	if s.patch, s.result.Err = f.patch(ctx, have, found, p, opts); s.result.Err == nil {
		s.schema, s.chains = f.schema, newWriter(f.schema, p.Node, opts)
		s.result.Err = s.put()
	}
	s.result.Duration = time.Since(start)
	return s
}

// patch returns the patch for a plan, from the table's state or from what was read. It reads the table if neither is known, or
// if its elements are to count less.
func (f *family) patch(ctx context.Context, have *state, found *reading, p *plan.Plan, opts Options) (_ *patch, err error) {
	last := nothing(f.schema)
	if have != nil {
		last = have.holds
	}
	want := render(p, opts, last)
	if level := opts.Counters.Allow(want.counters); level > f.schema.counting {
		f.count(ctx, level, want.counters, opts.Counters)
		have, found, want = nil, nil, render(p, opts, nothing(f.schema))
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

// count makes the elements count at another level, in other sets, which were not read.
func (f *family) count(ctx context.Context, level backend.Counting, needed backend.Counters, limits backend.CounterLimits) {
	if level > limits.Counting {
		klog.FromContext(ctx).Info("Counting fewer connections, because counters for all of them need too much memory; set --connection-counters to count them all the same",
			"family", f.schema.family, "counted", level, "counters", needed.At(limits.Counting), "bytes", needed.At(limits.Counting)*limits.Size, "limit", limits.Limit)
	}
	f.schema = newSchema(f.schema.family, level)
	f.counts.Store(int32(level))
}

// finish removes what is no longer used.
func (s *syncPass) finish() {
	start := time.Now()
	if s.result.Err == nil {
		s.result.Err = s.tidyUp()
	}
	s.result.Duration += time.Since(start)
}

const (
	// doubtRetry is when to write again what another program may have changed while it was written; it doubles up to
	// maxDoubtRetry.
	doubtRetry    = time.Second
	maxDoubtRetry = 4 * time.Second
)

// trust ends the pass and returns its result. alone reports that nobody else wrote during the pass. Otherwise another program may
// have changed a chain before the fingerprint was taken, which is then not recorded: the next Sync writes all chains again.
func (s *syncPass) trust(alone bool) backend.Result {
	f, start := s.of, time.Now()
	switch {
	case s.result.Err != nil || !s.fingerprinted:
	case alone:
		f.doubt = 0
		s.result.Err = s.record()
	default:
		s.patch.result.doubtful = true
		f.doubt = min(max(2*f.doubt, doubtRetry), maxDoubtRetry)
		s.result.Again = f.doubt
	}
	if s.result.Err == nil {
		f.have = s.patch.result
	}
	s.result.Err = wrap(s.result.Family, s.result.Err)
	s.result.Duration += time.Since(start)
	s.result.Elements, s.result.Rules = s.elements, s.rules
	return s.result
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
	failed := []error{b.watch.Close()}
	for _, f := range b.families {
		failed = append(failed, wrap(f.schema.family, f.table.Close()))
	}
	return errors.Join(failed...)
}
