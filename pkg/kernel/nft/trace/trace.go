package trace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

const (
	// Table is the name of the tables that select packets.
	Table = "kube-proxy-trace"
	// Selected is the chain in which a packet's trace begins.
	Selected = "selected"
)

// The chains without rules that come last in their hook. An event there shows what became of the packet's addresses.
const (
	AfterPrerouting  = "after-prerouting"
	AfterOutput      = "after-output"
	AfterInput       = "after-input"
	AfterPostrouting = "after-postrouting"
)

// maxDestinations is the largest number of a Filter's destinations: the kernel compares packets with each.
const maxDestinations = 128

var (
	// ErrRunning means that another process traces in this network namespace.
	ErrRunning = errors.New("another trace is running on this node; two would take each other's packets for their own: wait until it ends")
	// ErrOldKernel means that the kernel would not remove the tables with the process.
	ErrOldKernel = errors.New("this kernel has no tables that end with their process (Linux 5.12 and later have): a trace could leave rules behind, so there is none")
)

// Filter selects packets by their source and their destination, before it is translated.
type Filter struct {
	// From are the sources; the zero Prefix is all.
	From netip.Prefix
	// To are the destinations, of the family of From if that is given; none are all, and need From.
	To []Destination
	// Opening selects only those segments of TCP that open a connection, and all packets of other protocols.
	Opening bool
	// PerSecond is the largest number of packets that are traced in a second, in each IP family; it is not 0.
	PerSecond uint32
}

// Destination is an address, or a port there.
type Destination struct {
	// Addr is an address; an unspecified one stands for all addresses of this machine of its IP family.
	Addr netip.Addr
	// Protocol is IPPROTO_TCP, IPPROTO_UDP or IPPROTO_SCTP, and Port a port; both 0 are all.
	Protocol byte
	Port     uint16
}

// Check rejects a filter of all packets, or of too many destinations.
func (f *Filter) Check() error {
	if !f.From.IsValid() && len(f.To) == 0 {
		return errors.New("neither a source nor a destination is given")
	}
	if len(f.To) > maxDestinations {
		return fmt.Errorf("%d addresses and ports are more than %d: name one of them", len(f.To), maxDestinations)
	}
	return nil
}

// Kind is what an Event is about.
type Kind byte

// The kinds of events, with the kernel's numbers.
const (
	Policy Kind = 1 // the end of a base chain
	Return Kind = 2 // the end of any other chain
	Rule   Kind = 3
)

// Event is one message about a packet: a rule that it matched, or the end of a chain.
type Event struct {
	// Packet identifies the packet. The kernel uses a number again for later packets.
	Packet uint32
	Kind   Kind
	// Family is the table's: ip, ip6, inet, arp, bridge or netdev.
	Family       string
	Table, Chain string
	// Handle identifies the rule in its table; 0 if Kind is not Rule.
	Handle uint64
	// Verdict is accept, drop, stolen, queue, continue, return, or jump or goto with the chain To. A rule that rejects has
	// the verdict drop.
	Verdict string
	To      string
	// Headers are the packet's, as they are there; only the first event in each base chain has them.
	Headers *Headers
}

// Headers are what is known of a packet.
type Headers struct {
	// Protocol is an IPPROTO_*; the ports are 0 unless it has any.
	Protocol            byte
	Source, Destination netip.AddrPort
	// Flags are those of TCP; 0 for other protocols.
	Flags byte
	// In and Out are the names of the interfaces; "" if there is none yet.
	In, Out string
	Mark    uint32
}

// Description is what the kernel says about an event's chain and rule at the time of asking.
type Description struct {
	// Hook and Priority are a base chain's, such as prerouting and -100. Hook is "" if the chain is none, or gone.
	Hook     string
	Priority int32
	// Type is a base chain's: filter, nat or route.
	Type string
	// Rejects reports that the rule has a statement that rejects.
	Rejects bool
	// Comment is the rule's.
	Comment string
}

// Tracer is a trace that runs. One goroutine uses it.
type Tracer interface {
	// Next waits for events until ctx ends, and returns those that there are. lost means that the kernel had more than the
	// tracer could receive: then packets are incomplete.
	Next(ctx context.Context) (events []Event, lost bool, _ error)
	// Describe reads what an event's chain and rule are. A chain or rule that is gone has no description, which is no error.
	Describe(e Event) (Description, error)
	// Close ends the trace, and removes its tables.
	Close() error
}
