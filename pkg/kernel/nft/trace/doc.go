// Package trace is the door to nf_tables' own trace of packets: which rules a packet matches, chain by chain.
//
//	trace.go   what is traced (a Filter) and what is reported (an Event)
//	open.go    the kernel's: a connection with tables that select packets, and a socket that receives their events
//	select.go  the rules of these tables
//	decode.go  the kernel's messages
//	rules.go   what a reported chain and rule are
//
// The tables that select packets are owned by the tracer ([nf.Batch.AddOwnedTable]): the kernel removes them when the tracer is
// closed and when its process ends, also by SIGKILL. They only set a flag on a limited number of packets, which changes nothing
// about where these go.
package trace
