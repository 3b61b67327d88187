// Package nftables renders a plan as nf_tables rules whose number does not depend on the cluster: a fixed skeleton of
// chains, and Services and endpoints as elements of a few maps. README.md describes the layout and what each connection
// meets.
//
// The schema is one table of sets. Each row has the set's name, the columns of its keys and values (how they are declared,
// encoded, decoded and listed), its phase, and where its elements come from: cells of a frontend's entry, or a list of
// members. Everything that handles elements is a loop over the table.
//
//	render(*plan.Plan, Options, last *desired) *desired     what the table should hold; pure
//	diff(have *state, want *desired) *patch                 what to write, with the state that results; pure
//	read(ctx, nft.Table, *schema) (*state, error)           what the table holds in the kernel
//	applier.put, applier.tidyUp                             write a patch
//	drift.sync, drift.check                                 notice changes by others
//
// A desired and a state have the same content, a value that never changes: an entry for each frontend, addresses, and what
// the entries need. A state has each endpoint in its slot, and what only the kernel's table can have: a fingerprint, strays
// and leftovers.
//
// The files form no circle. Each uses only those before it:
//
//	affinity, target          names of pools, timeouts and sized chains
//	content                   the entries, and what they need
//	columns, source, schema   the table of sets
//	skeleton, render, text    the plan in the language of nftables
//	state, diff               what a table holds, and the way to what it should hold
//	read                      from the kernel
//	output, forget, apply     to the kernel
//	audit, drift              changes by others
//	backend, mode, compare    the contract of package backend
//	localhost, cleanup        what other packages need besides
package nftables
