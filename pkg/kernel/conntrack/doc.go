// Package conntrack is the door to the kernel's table of tracked connections (nf_conntrack), as far as a service
// proxy needs it: to delete UDP entries that send packets where nobody listens any more, and entries of TCP
// connections that were begun before there were rules for them. It speaks ctnetlink
// (linux/netfilter/nfnetlink_conntrack.h) and has a fake for tests.
//
// It relies on these facts; a test against the kernel proves each:
//
//   - A dump with CTA_FILTER (Linux 5.8) returns the entries of one protocol only, and with CTA_STATUS_MASK (Linux
//     5.15) those with some status bits only. A table full of other entries then costs the kernel's walk and no
//     copying. Older kernels ignore these attributes, so every entry is also filtered here.
//   - An entry that is deleted by its reply tuple (CTA_TUPLE_REPLY) and its CTA_ID is deleted only if it still sends
//     packets where it did when it was seen. Deletion by the original tuple could hit a later entry of the same
//     client that is sent elsewhere: CTA_ID is made of the entry's place in memory, which is soon used again.
//   - Entries may be deleted on one socket while another one dumps them.
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

// Kind selects the entries that a sweep visits.
type Kind uint8

const (
	// UDP selects all UDP entries.
	UDP Kind = iota
	// UnansweredTCP selects the TCP entries in state SYN_SENT that no packet answered, and whose destination is not
	// translated (no IPS_SEEN_REPLY, no IPS_DST_NAT). Nothing that works has such an entry. One whose source is
	// translated is among them: many pod networks masquerade what leaves them.
	UnansweredTCP
)

func (k Kind) String() string {
	if k == UnansweredTCP {
		return "unanswered TCP"
	}
	return "UDP"
}

// Flow is an entry: two ends, before and after the translation of addresses.
type Flow struct {
	Kind Kind
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
	// Sweep visits every entry of a family and a kind, of any zone, and deletes those for which unwanted returns
	// true. It first waits until packets that met earlier rules have passed, some milliseconds, so that it sees the
	// entries that they make. An unanswered TCP connection is looked at again just before it is deleted, and left
	// alone if it was answered meanwhile. Sweep reads the table once and keeps no part of it: its memory does not
	// depend on the number of entries. The flow is valid until unwanted returns. An entry that cannot be deleted
	// does not stop the sweep; the error reports it. When ctx ends, the sweep ends with its error.
	Sweep(ctx context.Context, family Family, kind Kind, unwanted func(*Flow) bool) (Swept, error)
	// Close lets go of the table.
	Close() error
}
