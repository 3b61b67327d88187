package nftables

import (
	"context"
	"errors"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Mode is the proxy mode of this backend.
type Mode struct{ Options Options }

var _ backend.Mode = Mode{}

// Open implements [backend.Mode], with a table for each family. It requires nft, and a kernel and privileges that allow
// writing tables ([nft.OpenUsable]).
func (m Mode) Open(ctx context.Context, families ...cluster.Family) (backend.Backend, error) {
	var numbers []nf.Family
	var watched []nf.TableName
	for _, family := range families {
		number := dialectOf(family).number
		numbers, watched = append(numbers, number), append(watched, nf.TableName{Family: number, Name: TableName})
	}
	tables, err := nft.OpenUsable(ctx, TableName, numbers...)
	if err != nil {
		return nil, err
	}
	watch, err := nf.OpenWatch(watched...)
	if err != nil {
		for _, table := range tables {
			err = errors.Join(err, table.Close())
		}
		return nil, err
	}
	return New(m.Options, watch, tables...), nil
}

// Prepare is part of [backend.Mode]: serving needs no fewer privileges.
func (Mode) Prepare(context.Context, *plan.Options) error { return nil }

// WithoutRawSockets is part of [backend.Mode]: they are not used.
func (Mode) WithoutRawSockets() string { return "" }

// Untraceable is part of [backend.Mode]: the trace shows these rules.
func (Mode) Untraceable(context.Context) error { return nil }

// Present implements [backend.Remover].
func (Mode) Present(ctx context.Context, families ...cluster.Family) (present bool, _ error) {
	err := onTables(families, func(table nft.Table) error {
		objects, err := table.Objects(ctx)
		present = present || err == nil && objects.Exists
		return err
	})
	return present, err
}

// Remove implements [backend.Remover]. Without a table, nft need not be installed.
func (Mode) Remove(ctx context.Context, families ...cluster.Family) error {
	return onTables(families, func(table nft.Table) error { return removeTable(ctx, table) })
}

// onTables calls a function with the table of each family, or of all if none are given. It continues after an error.
func onTables(families []cluster.Family, do func(nft.Table) error) error {
	var failed []error
	for _, family := range backend.OrAll(families) {
		failed = append(failed, onTable(family, do))
	}
	return errors.Join(failed...)
}
