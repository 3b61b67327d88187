// Package nft is the door to a table of nf_tables that is the caller's own. Package nfttest opens it on a fake nf_tables that is as
// strict as the kernel. Package ipt writes the tables of iptables-nft. Both speak to the kernel through package nf; what is here is nftables
// mode's own: statements, which are text and bytes, and text through nft.
//
// A [Table] is one address family's table. Its *skeleton* (the table itself, chains, rules and the declarations of sets and
// maps) is small, and the nft program writes it from text ([sigs.k8s.io/knftables]). Its *elements* are many and change all
// the time; they go straight to the kernel over netlink: a [Batch] encodes them into one reused buffer, and [Table.Commit]
// sends them as one transaction. A batch can also add a chain with its rules ([Batch.AddRule]), because nft cannot add some
// rules to a loaded table that it can load together with the table (see README.md).
//
// The package encodes everything as nft does, so that `nft list ruleset` can print it.
//
// The package knows nothing about Services: the caller chooses the names of tables, chains and sets, and their keys.
package nft
