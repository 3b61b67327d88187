// Package iptables renders a plan as iptables rules, in IPv4 and IPv6, for the nft and the legacy variant. README.md
// describes the chains and what each connection meets.
//
// [Backend.Sync] goes through these stages for each family. Those before apply are pure.
//
//	render  makes a rendering of a plan: what the tables should hold
//	diff    makes a patch of what they hold and what they should hold
//	apply   writes a patch through the door pkg/kernel/ipt, in steps that each leave a correct dataplane
//	read    reads what they hold, if that is not known
//
// The files, each of which uses only files of the lines before it:
//
//	schema, options    the kinds of chains, their names and ranks; what the machine can do
//	rule               rules as values, and their text
//	ruleset, writer    chains as values; what all rules of a family have in common
//	diff, read, tree   the stages; the tree that sorts frontends
//	dispatch           the places where frontends are told apart, each with a tree
//	port               the rules of one port of a Service, and of one frontend
//	render             the whole
//	apply, state       the stage; what is known of the tables
//	cleanup, drift, quarantine, text
//	                   removing everything; others' changes; what iptables refuses; rules for people to read
//	family, backend, counters
//	                   one family's sync; both families; packets counted
package iptables
