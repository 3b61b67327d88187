// Package iptables renders a plan as iptables rules, in IPv4 and IPv6, for the nft and the legacy variant. README.md
// describes the chains and what each connection meets.
//
// [Backend.Sync] goes through these stages for each family. Those before apply are pure.
//
//	render  renders a plan: what the tables should hold
//	diff    compares what they hold with what they should hold, and returns a patch
//	apply   writes a patch with pkg/kernel/ipt, in steps that each leave a correct dataplane
//	read    reads what the tables hold, if that is not known, and compares it with what they should hold
//
// The files. Each uses only files of the lines before it:
//
//	schema, options    the kinds of chains, their names and ranks; the machine's capabilities
//	rule               rules as values, and their text
//	ruleset, writer    chains as values; what all rules of a family share
//	diff, read, tree   the stages; the tree that sorts frontends
//	dispatch, fence    the places where packets are dispatched by frontend, each with a tree; bounds of connections
//	port               the rules of one port of a Service, and of one frontend
//	render             the whole ruleset
//	refused            which port of a Service iptables refuses
//	apply              the stage
//	cleanup, text      removal of everything; rules as text
//	family, reread     one family's rules for pkg/proxy/backend/keeper: their sync; what others may have changed
//	backend, counters, connections, explain
//	                   both families; packet counters; what the rules do to a packet
//	compare, mode, probe
//	                   differences for people; opening and removal; what is missing here
package iptables
