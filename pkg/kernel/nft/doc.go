// Package nft is the door to nf_tables: the only place that writes nftables rules, and a fake that is as strict as the
// kernel (see [Fake]).
//
// A [Table] is one address family's table. Its *skeleton* (the table itself, chains, rules and the declarations of sets and
// maps) is few and legible, and goes through the nft program as text ([sigs.k8s.io/knftables]). Its *elements* are many
// and change all the time, and go straight to the kernel over netlink: a [Batch] encodes them at once into one reused
// buffer, and [Table.Commit] sends them as one transaction. A batch can also add a chain with its rules ([Batch.AddRule]),
// because nft cannot add to a loaded table some of the rules that it can load with it (README.md tells which).
//
// Everything that is written here is written as nft itself would have written it, so that `nft list ruleset` prints it.
//
// The package knows nothing of Services: names of tables, chains, sets and their keys are the caller's.
package nft
