// Package conntrack deletes entries from the kernel's connection tracking table (nf_conntrack): UDP entries that send
// packets to endpoints that are gone, entries of TCP connections that were started before there were rules for
// them, and those of TCP and SCTP connections to endpoints that are gone. It uses ctnetlink
// (linux/netfilter/nfnetlink_conntrack.h) and package conntracktest is its fake.
//
// It relies on these facts, each of which a test checks against the kernel:
//
//   - A dump with CTA_FILTER (Linux 5.8) returns the entries of one protocol only, and with CTA_STATUS_MASK (Linux
//     5.15) those with some status bits only. Other entries then cost the kernel's walk, but no copying. Older
//     kernels ignore these attributes, so every entry is also filtered here.
//   - Deletion by reply tuple (CTA_TUPLE_REPLY) and CTA_ID deletes an entry only if it still sends packets to the same
//     place. Deletion by the original tuple could hit a later entry of the same client that is sent elsewhere: CTA_ID
//     is derived from the entry's address in memory, which is soon reused.
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
	// UnansweredTCP selects the TCP entries in state SYN_SENT without any reply, whose destination is not translated
	// (no IPS_SEEN_REPLY, no IPS_DST_NAT). No working connection has such an entry. The source may be translated: many
	// pod networks masquerade connections that leave them.
	UnansweredTCP
	// TranslatedTCP selects the TCP entries whose destination is translated (IPS_DST_NAT), until both ends have closed the connection.
	TranslatedTCP
	// TranslatedSCTP selects the SCTP entries whose destination is translated.
	TranslatedSCTP
)

func (k Kind) String() string {
	return [...]string{"UDP", "unanswered TCP", "translated TCP", "translated SCTP"}[k]
}

// Flow is an entry: its two ends, before and after translation.
type Flow struct {
	Kind Kind
	// Source and Destination are those of the flow's first packet, before translation.
	Source, Destination netip.AddrPort
	// ReplySource is the source of replies, which is where packets are really sent. It equals Destination if that is
	// not translated.
	ReplySource netip.AddrPort
}

// Translated reports whether the flow's destination is translated (DNAT).
func (f Flow) Translated() bool { return f.Destination != f.ReplySource }

// Swept is the result of a sweep.
type Swept struct {
	// Seen and Deleted count entries.
	Seen, Deleted int
	// Partial means that entries may have been missed, because the kernel's answer was interrupted by changes of the
	// table. All entries that were seen have been handled; another sweep sees the rest.
	Partial bool
}

// Table is the table of one network namespace. Kernel is the real one. Its methods must not be
// called concurrently.
type Table interface {
	// Settle waits, some milliseconds, until packets that met earlier rules have passed, so that a sweep sees the entries
	// that they create.
	Settle(ctx context.Context) error
	// Sweep visits every entry of a family and a kind, in any zone, and deletes those for which unwanted returns true.
	// An unanswered TCP connection is read again just before it is deleted, and kept if it was answered in the meantime. Sweep reads the table once, and its memory does not depend on the number of entries.
	// The flow is valid until unwanted returns. An entry that cannot be deleted does not stop the sweep; the error
	// reports it. If ctx ends, the sweep returns its error.
	Sweep(ctx context.Context, family Family, kind Kind, unwanted func(*Flow) bool) (Swept, error)
	// Close closes the sockets.
	Close() error
}
