package ipt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Family is an address family.
type Family string

// The two address families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// Variant is what the programs write to: the nf_tables or the x_tables of the kernel. A rule written to the one is not
// seen by the programs of the other, though both are in force.
type Variant string

// The two variants.
const (
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

// Features is what the programs can do.
type Features struct {
	Variant Variant
	// RandomFully tells that MASQUERADE takes --random-fully (iptables 1.6.2).
	RandomFully bool
}

// Tables is one address family's tables. [Open] gives the kernel's, [NewFake] some for tests.
//
// One goroutine owns a Tables; only Packets is for any. Programs run in the network namespace of the calling thread, which must be that in which
// it was opened. They share /run/xtables.lock with others and wait for it up to [LockWait]; if that is not enough, the
// error is [ErrLocked].
type Tables interface {
	// Family is the tables' address family.
	Family() Family
	// Features tells the variant and what it can do.
	Features() Features

	// Restore feeds input to iptables-restore --noflush --counters: a table's changes are made all or not at all, a user
	// chain that the input declares is made or emptied, every other chain keeps its rules. An error that the program
	// gives for the input's sake is a [*RestoreError].
	Restore(ctx context.Context, input string) error
	// Save gives a table as iptables-save -c prints it. A table that is not there is empty text.
	Save(ctx context.Context, table string) (string, error)

	// Rules lists a chain's rules as iptables -S prints them, without the words -A CHAIN.
	Rules(table, chain string) ([]string, error)
	// Insert puts a rule at a built-in chain's head, if the chain does not hold it.
	Insert(table, chain string, rule ...string) error
	// Append puts a rule at a chain's end, if the chain does not hold it, and makes the chain if need be.
	Append(table, chain string, rule ...string) error
	// Delete takes a rule out of a chain. That it is not there is no error.
	Delete(table, chain string, rule ...string) error

	// Changes tells what anybody, this process too, changed since it was last called, or since the door was opened. In the
	// nft variant the kernel tells of every chain. In the legacy variant it does not: that anything may have changed in the
	// given tables is told when their sizes are others, or a program took the xtables lock, on any table. A program that
	// writes without the lock as many rules of the same size is missed.
	Changes(tables ...string) (*Changes, error)
	// Digests sums up each chain of a table as the kernel has it, counters left out: all of them, or those given, which
	// costs less in the nft variant. Equal digests are equal rules in the same order, within one process and one Tables.
	// An empty chain's is 0; one that is not there has none. Others' writes meanwhile may make it [ErrBusy].
	Digests(ctx context.Context, table string, chains ...string) (map[string]uint64, error)

	// RuleDigests sums up the rules of a chain, each by itself, in the order in which Rules lists them, but without a program.
	// In the legacy variant, where that would cost more than it saves, there are none.
	RuleDigests(table, chain string) ([]uint64, error)

	// Packets tells how many packets have met each rule of a chain since it was written, in the order in which Rules lists
	// them, but without a program. A chain that is not there has none. In the legacy variant the kernel hands out the whole
	// table for it. Any goroutine may ask, in the network namespace of the door. Others' writes meanwhile may make it
	// [ErrBusy].
	Packets(table, chain string) ([]uint64, error)

	// Close releases what is held open. It removes nothing.
	Close() error
}

// ChainName names a chain of a family.
type ChainName struct {
	Table, Chain string
}

// Changes is what was changed, perhaps to what it was before.
type Changes struct {
	// Chains are those known, with the name of the program that wrote each last, as the kernel has it: 15 bytes at most.
	Chains map[ChainName]string
	// More tells that others may have been changed too.
	More bool
}

// LockWait is how many seconds a program waits for the xtables lock.
const LockWait = 5

// ErrLocked tells that another program held the xtables lock for longer than [LockWait].
var ErrLocked = errors.New("another program holds the lock /run/xtables.lock; " +
	"`fuser -v /run/xtables.lock` tells which, and in a container that file must be the host's")

// ErrMissing tells that the programs are not installed.
var ErrMissing = errors.New("iptables is not installed: install the iptables package (1.8 or later), or use the nftables mode")

// RestoreError tells that iptables-restore did not take its input. Of the table in question nothing was changed.
type RestoreError struct {
	Family Family
	// Line is the number, from 1, of the line that the program blames, and Text that line; 0 and "" where it does not
	// tell or blames COMMIT.
	Line int
	Text string
	// Output is what the program says.
	Output string
}

// Error tells the operation, the cause and what to do.
func (e *RestoreError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "iptables %s: restore", e.Family)
	if e.Line > 0 {
		fmt.Fprintf(&b, ": line %d, %q", e.Line, e.Text)
	}
	fmt.Fprintf(&b, ": %s", e.Output)
	b.WriteString(adviceFor(e.Output))
	return b.String()
}

// adviceFor says what a program's words mean here and what to do.
func adviceFor(output string) string {
	for _, known := range []struct{ words, advice string }{
		{"do you need to insmod", "the kernel has no such table: load the modules iptable_nat and iptable_filter (ip6table_... for IPv6), or use the nft variant"},
		{"Permission denied", netlink.NeedsNetAdmin},
		{"Operation not permitted", netlink.NeedsNetAdmin},
		{"Table does not exist", "the kernel lacks x_tables: use the nft variant"},
		{"Device or resource busy", "a rule of somebody else's still goes to the chain: find it with iptables-save"},
		{"RULE_APPEND failed", "the kernel refuses the rule: one of the modules that it needs (xt_...) may be missing"},
		{"No child processes", "the program was interrupted"},
	} {
		if strings.Contains(output, known.words) {
			return ": " + known.advice
		}
	}
	return ""
}
