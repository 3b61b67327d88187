// Package ipt is the only package that runs the programs of iptables. It has a fake that is as strict as they are (see
// [Fake]).
//
// A [Tables] is one address family's tables in one variant: nft, in which the programs write nf_tables, or legacy, in
// which they replace x_tables' blobs. [Detect] returns the one that a node uses. Rules are written in bulk, as the
// input of iptables-restore ([Tables.Restore]), which in the nft variant reaches the kernel without the program if it has only
// known forms of rules (docs/decisions/0021); single rules in built-in chains, which many programs share, by calls of
// iptables. Every call ends with its context, also if the program hangs, unless the program waits for a lock in the kernel:
// nothing can kill it then. Rules and counters are read from the kernel itself, without a program, by [Tables.Compare], [Tables.Has]
// and [Tables.Packets]. nf.Watch reports who wrote the nft variant's tables, [LegacyNotices] that somebody wrote those of the other.
//
// The package knows nothing about Services: the caller chooses the chains and their rules.
package ipt
