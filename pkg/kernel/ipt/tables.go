package ipt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Family is an address family.
type Family string

// The two address families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// Number is the family in nf_tables.
func (f Family) Number() nf.Family {
	if f == IPv6 {
		return nf.IPv6
	}
	return nf.IPv4
}

// Variant is what the programs write to: the nf_tables or the x_tables of the kernel. The programs of one variant do not see
// the rules of the other, though both are in effect.
type Variant string

// The two variants.
const (
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

// Features are the capabilities of the programs.
type Features struct {
	Variant Variant
	// AddressBits means that -s and -d match bits of an address that are not its first ones, such as 0.0.0.5/0.0.0.15. In the
	// nft variant 1.8.7 does not: it writes a comparison of no bytes, which the kernel refuses.
	AddressBits bool
}

// Tables is one address family's tables. [Open] returns the kernel's, package ipttest some for tests.
//
// One goroutine owns a Tables; other goroutines may only call Packets. Programs run in the network namespace of the calling
// thread, which must be the one in which the Tables was opened. They share /run/xtables.lock with others and wait for it up
// to [LockWait]; after that, the error is [ErrLocked].
type Tables interface {
	// Family is the tables' address family.
	Family() Family
	// Features returns the variant and its capabilities.
	Features() Features

	// Write makes all changes of a transaction or none. If they are refused, the error is a [*RestoreError]; also if they are larger
	// than what can be sent at once outside of the initial user namespace, which half of them may not be. In the nft variant of
	// iptables 1.8.9 and later it runs iptables-restore only if the kernel refuses them, or if rules were listed.
	Write(ctx context.Context, t *Transaction) error
	// Save returns a table as iptables-save -c prints it, and "" if there is no such table.
	Save(ctx context.Context, table string) (string, error)

	// Compare returns each chain of a table, or those given that exist, and whether it has the expected rules. It runs no program and
	// returns no text, so it takes far less time and memory than Save. A rule that iptables wrote counts as different if iptables
	// 1.8.9 and 1.8.10 would write it with other bytes. In the legacy variant, where Save is cheap, and with iptables before 1.8.9,
	// the error is [errors.ErrUnsupported]. If ctx ends, it returns the chains that it has compared until then with an error.
	Compare(ctx context.Context, table string, expected Expected, chains ...string) (map[string]Compared, error)

	// Rules lists a chain's rules as iptables -S prints them, without the words -A CHAIN.
	Rules(ctx context.Context, table, chain string) ([]string, error)
	// Insert inserts different rules, none of them [Listed], at the heads of built-in chains, one after the other, those that the chains do
	// not have: all of them or none.
	Insert(ctx context.Context, table string, rules ...ChainRule) error
	// Append appends a rule to a chain, if the chain does not have it, and creates the chain if necessary.
	Append(ctx context.Context, table, chain string, rule Rule) error
	// Delete deletes a rule from a chain. A missing rule is not an error.
	Delete(ctx context.Context, table, chain string, rule Rule) error

	// Packets returns for each of the chains how many packets have matched each rule since it was written, in the order of
	// Rules, without a program. A missing chain has none. In the legacy variant the kernel copies the whole table for it,
	// once. Any goroutine may call it, in the network namespace of the Tables. If others write meanwhile, the error may be
	// [ErrBusy].
	Packets(ctx context.Context, table string, chains ...string) (map[string][]uint64, error)

	// Close releases what is held open. It removes nothing.
	Close() error
}

// LockWait is how many seconds a program waits for the xtables lock.
const LockWait = 5

// ErrLocked means that another program held the xtables lock for longer than [LockWait].
var ErrLocked = errors.New("another program holds the lock /run/xtables.lock; " +
	"`fuser -v /run/xtables.lock` shows which, and in a container that file must be the host's")

// ErrMissing means that the programs are not installed.
var ErrMissing = errors.New("iptables is not installed: install the iptables package (1.8 or later), or use the nftables mode")

// RestoreError means that iptables-restore refused its input. Nothing of the table in question was changed.
type RestoreError struct {
	Family Family
	// Line is the number, from 1, of the line that the program blames, and Text that line; 0 and "" if it blames none, or
	// COMMIT.
	Line int
	Text string
	// Output is the output of the program.
	Output string
	// Large means that less has to be restored at a time.
	Large bool
}

// Error returns the operation, the cause and what to do.
func (e *RestoreError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "iptables %s: restore", e.Family)
	if e.Line > 0 {
		fmt.Fprintf(&b, ": line %d, %q", e.Line, e.Text)
	}
	fmt.Fprintf(&b, ": %s", e.Output)
	if e.Large {
		b.WriteString(": raise the host's sysctl net.core.wmem_max") // for a transaction of one Service
	} else {
		b.WriteString(adviceFor(e.Output))
	}
	return b.String()
}

// TooLarge reports whether an error means that less has to be restored at a time.
func TooLarge(err error) bool {
	refused, ok := errors.AsType[*RestoreError](err)
	return ok && refused.Large
}

// adviceFor returns what a program's output means here and what to do.
func adviceFor(output string) string {
	for _, known := range []struct{ words, advice string }{
		{"do you need to insmod", "the kernel has no such table: load the modules iptable_nat and iptable_filter (ip6table_... for IPv6), or use the nft variant"},
		{"open lock file", "the lock must be the host's: in a DaemonSet, the volumeMounts line {name: xtables-lock, mountPath: /run/xtables.lock} of the container kube-proxy, and its volume, grant it"},
		{"Permission denied", netlink.NeedsNetAdmin},
		{"Operation not permitted", nf.Advice(unix.EPERM)},
		{"Table does not exist", "the kernel lacks x_tables: use the nft variant"},
		{"Device or resource busy", "an external rule still jumps to the chain: find it with iptables-save"},
		{"RULE_APPEND failed", "the kernel refuses the rule: a module that it needs (xt_...) may be missing"},
		{"No child processes", "the program was interrupted"},
	} {
		if strings.Contains(output, known.words) {
			return ": " + known.advice
		}
	}
	return ""
}
