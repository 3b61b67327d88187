// Package ipt is the only package that runs the programs of iptables. Package ipttest runs it on a fake nf_tables, with
// programs that are as strict as they are.
//
// A [Tables] is one address family's tables in one variant: nft, in which the programs write nf_tables, or legacy, in which they
// replace x_tables' blobs. [Detect] returns the one that a node uses. A [Rule] is a value, rendered as text or bytes. Rules are
// written in bulk, as a [Transaction], which in the nft variant reaches the kernel without a program (docs/decisions/0021), as
// do jumps in built-in chains; other single rules, in chains that many programs share, by go-iptables. Every call ends with its
// context, even if the program hangs. Programs that wait for a lock in the kernel cannot be killed, nor can those that go-iptables runs: they
// are left behind, one for each family. Rules, counters and policies are read from the kernel itself, without a program, by [Tables.Compare],
// [Tables.Packets] and [Policies]. nf.Watch reports who wrote the tables of the nft variant, [LegacyNotices] that a program wrote those of
// the legacy variant.
//
// The package knows nothing about Services: the caller chooses the chains and their rules.
package ipt
