package nft

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// kernelTable is the kernel's table.
type kernelTable struct {
	*nf.Table
	family knftables.Family
	name   string
	runner knftables.Interface // nil until it is needed
}

// Open opens a table in the network namespace of the calling thread. The table need not exist.
// Reading and writing need CAP_NET_ADMIN, and Run needs the program nft (1.0.1 or later) in PATH and a caller in the same
// network namespace; Open does not check that ([OpenUsable] does).
func Open(family knftables.Family, table string) (Table, error) {
	opened, err := open(family, table)
	if err != nil {
		return nil, err // not a Table that holds nil
	}
	return opened, nil
}

func open(family knftables.Family, table string) (*kernelTable, error) {
	number := familyNumber(family)
	if number != nf.IPv4 && number != nf.IPv6 && number != nf.Inet {
		return nil, fmt.Errorf("nftables: open table %s %s: the family must be ip, ip6 or inet", family, table)
	}
	if table == "" || len(table) > nf.MaxNameLen {
		return nil, fmt.Errorf("nftables: open table %s %q: a table's name has 1 to %d bytes", family, table, nf.MaxNameLen)
	}
	t, err := nf.OpenTable(number, table)
	if err != nil {
		return nil, err
	}
	return &kernelTable{Table: t, family: family, name: table}, nil
}

// Family is part of [Table].
func (t *kernelTable) Family() knftables.Family { return t.family }

// NewBatch is part of [Table].
func (t *kernelTable) NewBatch() *Batch { return NewBatch(t.family, t.name, t.Limit()) }

// NewTransaction is part of [Table].
func (t *kernelTable) NewTransaction() *Transaction {
	return NewTransaction(t.family, t.name)
}

// Run is part of [Table].
func (t *kernelTable) Run(ctx context.Context, tx *Transaction) (err error) {
	if tx.NumOperations() == 0 {
		return nil
	}
	if t.runner == nil {
		t.runner, err = start(ctx, t.family, t.name)
	}
	if err == nil {
		err = explained(ctx, "nft", t.runner.Run(ctx, tx.Onto(t.runner.NewTransaction())))
	}
	return wrap("run a transaction", t.family, t.name, numbered(err))
}

// numbered adds the kernel's error number to an error of nft, so that errors.Is finds it.
func numbered(err error) error {
	if err == nil {
		return nil
	}
	words, _, _ := strings.Cut(err.Error(), "\n")
	for _, errno := range []unix.Errno{
		unix.ENOENT, unix.EEXIST, unix.EBUSY, unix.EOPNOTSUPP, unix.EMLINK, unix.ELOOP, unix.EPERM, unix.ENFILE, unix.EINVAL, unix.EMSGSIZE,
	} {
		if strings.Contains(strings.ToLower(words), errno.Error()) {
			return &textError{errno: errno, cause: err}
		}
	}
	return err
}

// textError is an error of nft with its number.
type textError struct {
	errno unix.Errno
	cause error
}

func (e *textError) Error() string { return e.cause.Error() }

// Unwrap returns both.
func (e *textError) Unwrap() []error { return []error{e.errno, e.cause} }

// Settle is part of [Table].
func (t *kernelTable) Settle(ctx context.Context) error {
	return wrap("wait for packets", t.family, t.name, netlink.Settle(ctx))
}
