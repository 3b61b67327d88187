package ipt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// kernelTables are the kernel's tables.
type kernelTables struct {
	family   Family
	features Features
	programs programs
	// direct is nil in the legacy variant, and with programs that could not list what it writes.
	*direct
	// calls holds what single is doing.
	calls chan struct{}
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
	t := &kernelTables{family: family, programs: found, calls: make(chan struct{}, 1), features: Features{variant, variant == Legacy || encoded}}
	if variant != NFT || !encoded {
		return t, nil
	}
	conn, err := nf.Open()
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
			return &RestoreError{Family: t.family, Output: large.Error()}
		case err == nil:
			return nil
		case ctx.Err() != nil && !errors.Is(err, errIndirect):
			return fmt.Errorf("iptables %s: restore: %w", t.family, err)
		}
	}
	// The program writes what cannot be written directly, and words the error of what is refused.
	return t.restore(ctx, transaction.Text())
}

// restore does what iptables-restore --noflush --counters does with an input.
func (t *kernelTables) restore(ctx context.Context, input string) error {
	_, err := t.run(ctx, input, t.programs.restore, "--noflush", "--counters", "--wait", strconv.Itoa(LockWait))
	return err
}

// Save is part of [Tables].
func (t *kernelTables) Save(ctx context.Context, table string) (string, error) {
	if t.features.Variant == Legacy && !legacyTableExists(t.family, table) {
		return "", nil // reading would create it
	}
	out, err := t.run(ctx, "", t.programs.save, "--counters", "--table", table)
	whole := strings.Contains(out, "*"+table+"\n") && strings.Contains(out, "\nCOMMIT\n")
	if err == nil && out != "" && !whole {
		return "", fmt.Errorf("iptables %s: the output of %s is not a whole table: %s", t.family, t.programs.save, brief([]byte(out)))
	}
	return out, err
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
	read := nftPackets
	if t.features.Variant == Legacy {
		read = legacyPackets
	}
	packets, err := read(ctx, t.family, table, chains)
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
