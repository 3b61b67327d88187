// Package nft is the door to a table of nf_tables that is the caller's own. Package nfttest opens it on a fake nf_tables that is as
// strict as the kernel. Package ipt writes the tables of iptables-nft. Both speak to the kernel through package nf; what is here is nftables
// mode's own: statements, which are text and bytes, and text through nft.
//
// A [Table] is one address family's table. Its *skeleton* (the table itself, chains, rules and the declarations of sets and
// maps) is small, and the nft program writes it from text ([sigs.k8s.io/knftables]). Its *elements* are many and change all
// the time; they go straight to the kernel over netlink: an nf.Batch encodes them into one reused buffer, and [Table.Commit]
// sends them as one transaction.
//
// A batch can also add a chain with its rules ([AddRule]), such as the one or two of a pool of a new size: nft takes 14 to 36 ms to
// start with 250,000 elements in the table, and nft 1.0.6 rejects these chains: once the kernel has a map declared with
// "typeof … : ip daddr . th dport", it cannot add a rule that looks up in it.
//
// OpenUsable starts nft once for both families, which saves some 15 of 100 ms of a cold start with 1,000 Services. knftables.New takes no
// context, so it runs in a goroutine, which stays behind if nft hangs. If the kernel's number is older than 5.13, a trial shows whether its
// nf_tables is: distributions backport it. knftables writes comments of tables, chains and sets even if the kernel is too old for them.
//
// The package encodes everything as nft does, so that `nft list ruleset` can print it.
//
// The package knows nothing about Services: the caller chooses the names of tables, chains and sets, and their keys.
package nft
