package ipt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// kernelTables are the kernel's tables.
type kernelTables struct {
	family   Family
	features Features
	Programs
	// direct is nil in the legacy variant, and with programs that could not list what it writes.
	*direct
	// open opens another connection to nf_tables.
	open func() (*nf.Conn, error)
}

// OpenUsable is [Open] for a caller that will write. If the kernel has no tables of the family, that is the error. In the
// legacy variant it creates the table nat.
func OpenUsable(ctx context.Context, family Family, variant Variant) (Tables, error) {
	t, err := Open(ctx, family, variant)
	if err != nil {
		return nil, err
	}
	if _, err := t.Rules(ctx, "nat", "PREROUTING"); err != nil && missesTables(err.Error()) {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil // after any other error a write may succeed: the tables may have been locked, for example
}

// missesTables reports whether a program's output means that the kernel lacks a table.
func missesTables(output string) bool {
	for _, words := range []string{"Table does not exist", "do you need to insmod", "unable to initialize table", "Protocol not supported", "Failed to initialize nft"} {
		if strings.Contains(output, words) {
			return true
		}
	}
	return false
}

// Open opens one family's tables in the network namespace of the calling thread. It needs the variant's
// programs in PATH ([ErrMissing]) and CAP_NET_ADMIN, in the legacy variant CAP_NET_RAW too.
func Open(ctx context.Context, family Family, variant Variant) (Tables, error) {
	found, err := find(ctx, family, variant)
	if err != nil {
		return nil, err
	}
	// The first version that lists all matches of what an encoder writes, and writes matches of any bits of an address; 1.8.7 omits
	// ports and marks.
	encoded := found.since(1, 8, 9)
	return NewTables(family, Features{variant, variant == Legacy || encoded}, &found, nf.Open)
}

// NewTables returns tables over programs and connections to nf_tables.
func NewTables(family Family, features Features, programs Programs, open func() (*nf.Conn, error)) (Tables, error) {
	t := &kernelTables{family: family, features: features, Programs: programs, open: open}
	if features.Variant != NFT || !features.AddressBits {
		return t, nil
	}
	conn, err := open()
	if err != nil {
		return nil, fmt.Errorf("iptables %s: %w", family, err)
	}
	t.direct = newDirect(conn, family)
	return t, nil
}

// Family is part of [Tables].
func (t *kernelTables) Family() Family { return t.family }

// Features is part of [Tables].
func (t *kernelTables) Features() Features { return t.features }

// Write is part of [Tables].
func (t *kernelTables) Write(ctx context.Context, transaction *Transaction) error {
	if t.direct != nil {
		err := t.write(ctx, transaction)
		large, isLarge := errors.AsType[*nf.TooLargeError](err)
		switch {
		case isLarge:
			return &RestoreError{Family: t.family, Output: large.Error(), Large: true}
		case err == nil:
			return nil
		case ctx.Err() != nil && !errors.Is(err, errIndirect):
			return fmt.Errorf("iptables %s: restore: %w", t.family, err)
		}
	}
	// The program writes what cannot be written directly, and words the error of what is refused.
	return t.Restore(ctx, transaction.Text())
}

// Compare is part of [Tables].
func (t *kernelTables) Compare(ctx context.Context, table string, expected Expected, chains ...string) (map[string]Compared, error) {
	if t.direct == nil {
		return nil, errors.ErrUnsupported
	}
	compared, err := t.compare(ctx, table, expected, chains)
	if err != nil {
		err = fmt.Errorf("iptables %s: compare table %s: %w", t.family, table, err)
	}
	return compared, err
}

// Packets is part of [Tables].
func (t *kernelTables) Packets(ctx context.Context, table string, chains ...string) (map[string][]uint64, error) {
	var packets map[string][]uint64
	var err error
	if t.features.Variant == Legacy {
		packets, err = t.Programs.Packets(ctx, table, chains...)
	} else {
		packets, err = nftPackets(ctx, t.open, t.family, table, chains)
	}
	if err != nil {
		return nil, fmt.Errorf("iptables %s: read the counters of table %s: %w", t.family, table, err)
	}
	return packets, nil
}

// Close is part of [Tables].
func (t *kernelTables) Close() error {
	if t.direct == nil {
		return nil
	}
	return t.direct.Close()
}
