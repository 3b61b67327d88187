package nft

import (
	"context"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// kernelTable is a table of nf_tables.
type kernelTable struct {
	*nf.Table
	program Program
}

// Open opens a table of ip, ip6 or inet in the network namespace of the calling thread. The table need not exist; its name has 1 to
// [nf.MaxNameLen] bytes.
// Reading and writing need CAP_NET_ADMIN, and Run needs the program nft (1.0.1 or later) in PATH and a caller in the same
// network namespace; Open does not check that ([OpenUsable] does).
func Open(family nf.Family, table string) (Table, error) {
	return open(family, table, nil)
}

// open opens a table with knftables' runner, which may be nil until it is needed.
func open(family nf.Family, table string, runner knftables.Interface) (Table, error) {
	conn, err := nf.Open()
	if err != nil {
		return nil, wrap("open", family, table, err)
	}
	return New(conn, family, table, &program{family, table, runner}), nil
}

// New returns a table over a connection, which it closes with itself, and a program.
func New(conn *nf.Conn, family nf.Family, table string, program Program) Table {
	return &kernelTable{nf.NewTable(conn, family, table), program}
}

// NewBatch is part of [Table].
func (t *kernelTable) NewBatch() *nf.Batch { return nf.NewBatch(t.Family(), t.Name(), t.Limit()) }

// NewTransaction is part of [Table].
func (t *kernelTable) NewTransaction() *Transaction {
	return NewTransaction(t.Family(), t.Name())
}

// Run is part of [Table].
func (t *kernelTable) Run(ctx context.Context, tx *Transaction) error {
	if len(tx.Operations()) == 0 {
		return nil
	}
	return wrap("run a transaction", t.Family(), t.Name(), t.program.Run(ctx, tx))
}

// Commit is part of [Table].
func (t *kernelTable) Commit(ctx context.Context, b *nf.Batch) error {
	return wrap("commit a batch", t.Family(), t.Name(), t.Conn.Commit(ctx, b))
}

// Rules is part of [Table].
func (t *kernelTable) Rules(ctx context.Context) (map[string][]string, error) {
	out, err := t.program.List(ctx)
	if err != nil {
		return nil, wrap("list rules", t.Family(), t.Name(), err)
	}
	return rulesIn(out), nil
}

// Again is part of [Table].
func (t *kernelTable) Again() (Table, error) { return Open(t.Family(), t.Name()) }

// Settle is part of [Table].
func (t *kernelTable) Settle(ctx context.Context) error {
	return wrap("wait for packets", t.Family(), t.Name(), netlink.Settle(ctx))
}
