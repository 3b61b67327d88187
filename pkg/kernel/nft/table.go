package nft

import (
	"context"
	"iter"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Table is one address family's table. [Open] returns the kernel's, package nfttest one of a fake kernel.
//
// One goroutine owns a Table: its methods must not be called concurrently. A method whose context ends while the kernel
// is still busy (another process may hold nf_tables' lock for long) returns at once; its request may still take effect. Run
// and Rules return when nft has ended, which it does at once unless it waits for that lock: nothing can kill a process that does.
type Table interface {
	// Family is the table's address family.
	Family() nf.Family
	// Name is the table's name.
	Name() string

	// NewTransaction starts a change of the skeleton. To declare a map whose elements count packets, end its Type or
	// TypeOf with "; counter": knftables has no field for it.
	NewTransaction() *Transaction
	// Run makes the change with nft, all or nothing. The error wraps the kernel's number: errors.Is(err, unix.ENOENT).
	Run(ctx context.Context, tx *Transaction) error

	// Objects, Fingerprint, Elements, Find and Counters are those of [nf.Table].
	Objects(ctx context.Context) (nf.Objects, error)
	Fingerprint(ctx context.Context, except string) (digest string, objects map[string]string, err error)
	Elements(ctx context.Context, set string) iter.Seq2[nf.Element, error]
	Find(ctx context.Context, set string, keys iter.Seq[[]byte]) iter.Seq2[nf.Element, error]
	Counters(ctx context.Context) ([]nf.Counter, error)

	// Rules lists the rules of each chain, as nft writes them, which differs a little between its versions. It needs nft and a
	// caller in the same network namespace, as Run does. The error is ENOENT if there is no table.
	Rules(ctx context.Context) (map[string][]string, error)

	// NewBatch starts a change of elements. It may be used for any number of commits: Reset it in between.
	NewBatch() *nf.Batch
	// Commit makes the change, all or nothing. If the kernel refused an operation, the error is a [*nf.Refusal], which names
	// its set or chain. Commit of an empty batch does nothing.
	Commit(ctx context.Context, b *nf.Batch) error

	// Settle waits until every packet that was being processed when it was called has passed, some milliseconds at most. A
	// packet that was sent to a chain before a transaction uses the sets as they are after it, so objects that are no
	// longer in use can be deleted without harm only after Settle.
	Settle(ctx context.Context) error

	// Again opens the table once more, for another goroutine, in the network namespace of the calling thread.
	Again() (Table, error)
	// Close releases the table's socket. It removes nothing.
	Close() error
}

// MaxCounters returns how many counters fit into some bytes of memory: each has, for each processor that the machine may have, struct
// nft_counter, which is two numbers of 64 bits.
func MaxCounters(bytes, possibleCPUs int) int { return bytes / (16 * possibleCPUs) }
