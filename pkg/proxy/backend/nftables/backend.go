package nftables

import (
	"context"
	"errors"
	"time"

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
}

// Open makes a backend for the network namespace that it is called in, with a table for each family.
func Open(opts Options, families ...cluster.Family) (*Backend, error) {
	var tables []nft.Table
	for _, family := range families {
		table, err := nft.Open(dialectOf(family).family, TableName)
		if err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	return New(opts, tables...), nil
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

// Sync makes the tables hold what the plan says.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan) []backend.Result {
	results := make([]backend.Result, 0, len(b.families))
	before := b.generation(ctx)
	own := uint32(0)
	for _, f := range b.families {
		start := time.Now()
		result, transactions := f.sync(ctx, p, b.opts)
		own += transactions
		result.Family, result.Duration = f.is, time.Since(start)
		result.Err = wrap(f.is, result.Err)
		results = append(results, result)
	}
	b.watch.wrote(before, b.generation(ctx), own)
	return results
}

// sync brings one table to the plan.
func (f *family) sync(ctx context.Context, p *plan.Plan, opts Options) (result backend.Result, transactions uint32) {
	have := f.have
	f.have = nil // unless all goes well
	if have == nil {
		result.Read = true
		if have, result.Err = read(ctx, f.table, f.is); result.Err != nil {
			return result, 0
		}
	}
	patch := diff(have, render(f.is, p, opts, have))
	a := &applier{ctx: ctx, table: f.table, batch: f.batch, writer: newWriter(f.is, p.Node, opts)}
	if !patch.empty() {
		result.Err = a.apply(patch)
	}
	result.Elements, result.Rules, result.Heavy = a.elements, a.rules, a.text
	if result.Err == nil {
		f.have = patch.after
	}
	return result, a.transactions
}

// Cleanup removes the tables.
func (b *Backend) Cleanup(ctx context.Context) error {
	var failed []error
	for _, f := range b.families {
		f.have = nil
		failed = append(failed, wrap(f.is, cleanup(ctx, f.table)))
	}
	return errors.Join(failed...)
}

// Close leaves the tables as they are.
func (b *Backend) Close() error {
	var failed []error
	for _, f := range b.families {
		failed = append(failed, wrap(f.is, f.table.Close()))
	}
	return errors.Join(failed...)
}
