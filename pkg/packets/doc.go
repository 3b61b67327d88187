// Package packets turns the kernel's trace events into a report on each packet: source and destination, Service and endpoint,
// the chains that it passed, and the rule that refused it. The command "trace" shows it, and the canary of a running proxy gets its cause.
//
//	target.go   what to trace, from what a user names
//	names.go    the Services and endpoints of addresses
//	report.go   the report on one packet from its events; a pure function
//	text.go     the report for people
//	cause.go    the report on a packet of a connection that fails, in words
//	assemble.go sorts events into packets
//	follow.go   a trace from beginning to end
package packets
