// Package nftables renders a plan as nf_tables rules whose number does not depend on the cluster: a fixed skeleton of
// chains, and Services and endpoints as elements of a few maps. README.md describes the layout and what each connection
// meets.
//
// The schema is one table of sets. Each row has the set's name, the columns of its keys and values (how they are declared,
// encoded, decoded and listed), its phase, and where its elements come from: cells of a frontend's entry, or a list of
// members. Everything that handles elements is a loop over the table.
//
//	render(*plan.Plan, Options, last *desired) *desired     what the table should hold; pure
//	diff(have *state, want *desired) *patch                 what to write, and the resulting state; pure
//	read(ctx, nft.Table, *schema) (*reading, error)         what the table holds in the kernel
//	reading.state(*content) *state                          the same, sharing with the plan's content what is equal
//	syncPass.Put, syncPass.Finish                           write a patch
//	family.Reread                                           correct what is known of the table
//
// A desired and a state contain the same type, an immutable content: an entry for each frontend, addresses, and what the
// entries need. A state also has each endpoint in its slot, and what only a table in the kernel can have: a fingerprint,
// strays and leftovers, and what others altered.
//
// The fingerprint covers the table without elements, counters and handles, and is in the table itself, with a digest of the text
// behind it. A restarted proxy that computes the same two reads only the elements, and writes nothing if nothing changed; otherwise it
// rewrites the skeleton, without disturbing traffic. Listings are no alternative: knftables' have no content, and nft's depend on its
// version. Nor is the generation: it does not say who wrote. A fingerprint takes 0.1 ms, so the running proxy uses it too.
//
// The files. Each uses only those before it:
//
//	affinity, target          names of pools and sized chains
//	content                   the entries, and what they need
//	columns, source, schema   the table of sets
//	fence                     the sets of the clients of Services with limits
//	skeleton, render, text    the plan as nftables objects; skeleton.nft has the chains that do not depend on Services
//	clients                   how many clients are remembered
//	state, diff               what a table holds, and how to change it
//	read                      from the kernel
//	output, forget            to the kernel
//	refused, apply            whose rules the kernel refuses; a patch to the kernel
//	drift                     external changes
//	compare                   differences for people
//	backend, mode             the interface of package backend
//	connections, counters, probe   what only some backends have
package nftables
