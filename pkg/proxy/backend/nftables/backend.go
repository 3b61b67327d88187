package nftables

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend is the nf_tables dataplane. It implements backend.Backend.
type Backend struct {
	opts     Options
	families []*family
	watch    watch
}

var _ backend.Backend = (*Backend)(nil)

// family is one address family's table and what is known of it.
type family struct {
	is    cluster.Family
	table nft.Table
	batch *nft.Batch
	// have is what the table holds; nil when that has to be read.
	have *ruleset
	// audit is the one that is under way, census that of the ruleset whose elements were last counted.
	audit  *audit
	census census
}

// Open makes a backend for the network namespace that it is called in, with a table for each family. It fails where
// nothing could be written: without nft, a kernel or rights that do ([nft.OpenUsable]).
func Open(opts Options, families ...cluster.Family) (*Backend, error) {
	tables, err := openTables(nft.OpenUsable, families)
	if err != nil {
		return nil, err
	}
	return New(opts, tables...), nil
}

// openTables opens the tables of all families, or none.
func openTables(open func(knftables.Family, string) (nft.Table, error), families []cluster.Family) ([]nft.Table, error) {
	var tables []nft.Table
	for _, family := range families {
		table, err := open(dialectOf(family).family, TableName)
		if err != nil {
			for _, opened := range tables {
				_ = opened.Close() // the error that matters is at hand
			}
			return nil, wrap(family, err)
		}
		tables = append(tables, table)
	}
	return tables, nil
}

// New makes a backend that writes the given tables, one for each family to be served.
func New(opts Options, tables ...nft.Table) *Backend {
	b := &Backend{opts: opts}
	for _, table := range tables {
		f := &family{is: cluster.IPv4, table: table, batch: table.NewBatch()}
		if table.Family() == dialectOf(cluster.IPv6).family {
			f.is = cluster.IPv6
		}
		b.families = append(b.families, f)
	}
	return b
}

// Sync makes the tables hold what the plan says. Both families' packets meet it before anything is tidied up, for
// which packets on their way are waited for.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan) []backend.Result {
	before := b.generation(ctx)
	_ = b.compareShapes(ctx, before) // before any of it is taken for our own; if it fails, Check tries again and tells
	passages := make([]*passage, 0, len(b.families))
	for _, f := range b.families {
		passages = append(passages, f.put(ctx, p, b.opts))
	}
	results := make([]backend.Result, 0, len(b.families))
	own := uint32(0)
	for _, s := range passages {
		results = append(results, s.finish())
		own += s.applier.transactions
	}
	b.watch.wrote(before, b.generation(ctx), own)
	return results
}

// passage is one family's part of a Sync.
type passage struct {
	*family
	applier *applier
	patch   *patch
	result  backend.Result
}

// put brings one table to where packets meet what the plan says.
func (f *family) put(ctx context.Context, p *plan.Plan, opts Options) *passage {
	start := time.Now()
	s := &passage{family: f, applier: &applier{ctx: ctx, table: f.table, batch: f.batch, writer: newWriter(f.is, p.Node, opts)}}
	have := f.have
	f.have = nil // unless all goes well
	if have == nil {
		s.result.Read = true
		have, s.result.Err = read(ctx, f.table, f.is)
	}
	if s.result.Err == nil {
		s.patch = diff(have, render(f.is, p, opts, have))
		s.result.Err = s.applier.put(s.patch)
	}
	s.result.Duration = time.Since(start)
	return s
}

// finish tidies the table up, and tells how it all went.
func (s *passage) finish() backend.Result {
	start := time.Now()
	if s.result.Err == nil {
		s.result.Err = s.applier.tidyUp(s.patch)
	}
	if s.result.Err == nil {
		s.have = s.patch.after
	}
	s.result.Family, s.result.Err = s.is, wrap(s.is, s.result.Err)
	s.result.Duration += time.Since(start)
	s.result.Elements, s.result.Rules, s.result.Heavy = s.applier.elements, s.applier.rules, s.applier.text
	return s.result
}

// Cleanup removes the tables.
func (b *Backend) Cleanup(ctx context.Context) error {
	var failed []error
	for _, f := range b.families {
		f.have = nil
		f.endAudit()
		failed = append(failed, wrap(f.is, cleanup(ctx, f.table)))
	}
	return errors.Join(failed...)
}

// Close leaves the tables as they are.
func (b *Backend) Close() error {
	var failed []error
	for _, f := range b.families {
		f.endAudit()
		failed = append(failed, wrap(f.is, f.table.Close()))
	}
	return errors.Join(failed...)
}
