// Package packets turns the kernel's trace of packets into accounts of their ways: from where to where, to which Service and
// endpoint, and by whose rules a packet was refused.
//
//	target.go   what to trace, from what a user names
//	names.go    the Services and endpoints of addresses
//	account.go  the events of one packet as its account; a pure function
//	assemble.go sorts events into packets
//	follow.go   a trace from beginning to end
package packets
