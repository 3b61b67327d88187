// Package conntrack is the door to the kernel's table of tracked connections (nf_conntrack), as far as a service
// proxy needs it: to take out UDP entries that send packets where nobody listens any more. It speaks ctnetlink
// (linux/netfilter/nfnetlink_conntrack.h) and has a fake for tests.
//
// Facts relied on, each proven by a test against the kernel:
//
//   - A dump with CTA_FILTER (Linux 5.8) tells the entries of one protocol only, so that a table full of TCP costs
//     the kernel's walk and no copying. Older kernels ignore the attribute; what they tell is filtered here.
//   - An entry that is deleted by the two ends of its answers (CTA_TUPLE_REPLY) and its CTA_ID is deleted only if
//     it still sends packets where it did when it was seen. By the ends of its requests, a later entry of the same
//     two, sent elsewhere, could be hit: CTA_ID is made of the entry's place in memory, which is soon used again.
//   - Entries may be deleted on one socket while another dumps them.
package conntrack

import (
	"context"
	"net/netip"
)

// Family is an address family: AF_INET or AF_INET6.
type Family uint8

// The two address families.
const (
	IPv4 Family = 2
	IPv6 Family = 10
)

func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Flow is an entry: two ends, before and after the translation of addresses.
type Flow struct {
	// Source and Destination are those of the packet that began the flow, before anything translated it.
	Source, Destination netip.AddrPort
	// ReplySource is whom answers are expected from: where packets are really sent. It is Destination where that
	// is not translated.
	ReplySource netip.AddrPort
}

// Translated tells whether the flow's destination is translated (DNAT).
func (f Flow) Translated() bool { return f.Destination != f.ReplySource }

// Swept is what a sweep came to.
type Swept struct {
	// Seen and Deleted count entries.
	Seen, Deleted int
	// Partial tells that entries may have been missed, because the kernel could not tell all of a table that
	// changed meanwhile. What was seen has been dealt with; another sweep sees the rest.
	Partial bool
}

// Table is the table of one network namespace. Kernel is the real one, Fake one for tests. Its methods may not be
// called by several goroutines at once.
type Table interface {
	// SweepUDP visits every UDP entry of a family, of any zone, and deletes those that stale says are. It first waits until
	// the packets that are on their way have passed, some milliseconds, so that it sees what they make. It reads the
	// table once and keeps no part of it: what it costs in memory does not depend on how many entries there are.
	// The flow is valid until stale returns. An entry that cannot be deleted does not keep the others; it is told
	// in the error. When ctx ends, the sweep ends with its error.
	SweepUDP(ctx context.Context, family Family, stale func(*Flow) bool) (Swept, error)
	// Close lets go of the table.
	Close() error
}
