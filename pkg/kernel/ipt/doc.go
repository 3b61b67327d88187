// Package ipt is the door to iptables: the only place that runs its programs, and a fake as strict as they are
// (see [Fake]).
//
// A [Tables] is one address family's tables in one variant: nft, where the programs write nf_tables, or legacy, where
// they replace x_tables' blobs. [Detect] tells which one a node uses. Rules are written in bulk, as the input of
// iptables-restore ([Tables.Restore]); single rules in built-in chains, which many programs share, through
// [github.com/coreos/go-iptables]. Whether somebody else changed something, and what rules have counted, is asked of the
// kernel itself, without a program: [Tables.Changes] costs microseconds, [Tables.Digests] and [Tables.Packets] a pass over
// a table's or a chain's rules.
//
// The package knows nothing of Services: names of chains, and their rules, are the caller's.
package ipt
