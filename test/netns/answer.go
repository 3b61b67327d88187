//go:build linux

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Protocol is a transport protocol, by its name in a Service.
type Protocol string

// The protocols of a Service.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// Protocols returns all protocols.
func Protocols() []Protocol { return []Protocol{TCP, UDP, SCTP} }

// Family is an IP family.
type Family int

// The IP families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families returns both families, IPv4 first.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf returns the family of an address.
func FamilyOf(address netip.Addr) Family {
	if address.Is4() {
		return IPv4
	}
	return IPv6
}

// String returns "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

// Verdict is the outcome of a probe.
type Verdict int

const (
	// Unsent means that the probe could not be sent; see Answer.Err.
	Unsent Verdict = iota
	// Answered means that an endpoint answered.
	Answered
	// Refused means a TCP reset, an SCTP ABORT, or an ICMP error for the port, for the
	// protocol or from an administrator's rule (Answer.ICMP).
	Refused
	// Unreachable means an ICMP error for the host or the network (Answer.ICMP), or no
	// route at the sender.
	Unreachable
	// Dropped means that the probe timed out.
	Dropped
	// Broken means that a connection was established, and closed without an answer.
	Broken
)

// String returns the verdict in lower case, such as "answered".
func (v Verdict) String() string {
	names := [...]string{"unsent", "answered", "refused", "unreachable", "dropped", "broken"}
	if v < 0 || int(v) >= len(names) {
		return fmt.Sprintf("verdict %d", int(v))
	}
	return names[v]
}

// ICMP is an ICMP or ICMPv6 error message, by the numbers of RFC 792 and RFC 4443.
// The zero value means no error.
type ICMP struct {
	Type, Code uint8
	// From is the sender.
	From netip.Addr
}

// String returns type, code and sender, such as "ICMP 3/3 from 172.18.0.11".
func (i ICMP) String() string {
	switch {
	case !i.From.IsValid():
		return "no ICMP"
	case i.From.Is4():
		return fmt.Sprintf("ICMP %d/%d from %v", i.Type, i.Code, i.From)
	default:
		return fmt.Sprintf("ICMPv6 %d/%d from %v", i.Type, i.Code, i.From)
	}
}

// Answer is the result of a probe.
type Answer struct {
	Verdict Verdict
	// Endpoint is the name of the host that answered.
	Endpoint string
	// Reached is the address and port at which the probe reached the endpoint.
	Reached netip.AddrPort
	// Source is the probe's source address and port as seen by the endpoint.
	Source netip.AddrPort
	// Local is the address and port that the probe was sent from, if known.
	Local netip.AddrPort
	// ICMP is the ICMP error, if any.
	ICMP ICMP
	// Denied reports that send(2) itself failed with EPERM, because a rule in the sender's own output hook rejected or
	// dropped the packet. The kernel never reports this for TCP.
	Denied bool
	// Sent is when the probe was sent, Latency the time from then to the verdict.
	Sent    time.Time
	Latency time.Duration
	// Err is the system's error if the verdict is not Answered.
	Err error
}

// String describes the answer in one line.
func (a Answer) String() string {
	switch {
	case a.Verdict == Answered:
		return fmt.Sprintf("answered by %s at %v, source seen %v, %v", a.Endpoint, a.Reached, a.Source, a.Latency.Round(time.Microsecond))
	case a.ICMP != ICMP{} && a.Denied:
		return fmt.Sprintf("%v (send: %v; %v) after %v", a.Verdict, unix.EPERM, a.ICMP, a.Latency.Round(time.Microsecond))
	case a.ICMP != ICMP{}:
		return fmt.Sprintf("%v (%v) after %v", a.Verdict, a.ICMP, a.Latency.Round(time.Microsecond))
	case a.Err != nil:
		return fmt.Sprintf("%v (%v) after %v", a.Verdict, a.Err, a.Latency.Round(time.Microsecond))
	default:
		return a.Verdict.String()
	}
}

// line is a server's answer: its name, the address and port at which it was reached,
// the source that it saw, and the request.
type line struct {
	endpoint        string
	reached, source netip.AddrPort
	asked           string
}

func (l line) String() string {
	return fmt.Sprintf("%s %v %v %s\n", l.endpoint, l.reached, l.source, l.asked)
}

func parseLine(text string) (line, error) {
	fields := strings.Fields(text)
	if len(fields) < 3 || len(fields) > 4 {
		return line{}, fmt.Errorf("%q is not an answer of a lab server", text)
	}
	parsed := line{endpoint: fields[0]}
	var err error
	if parsed.reached, err = netip.ParseAddrPort(fields[1]); err != nil {
		return line{}, fmt.Errorf("the address reached in %q: %w", text, err)
	}
	if parsed.source, err = netip.ParseAddrPort(fields[2]); err != nil {
		return line{}, fmt.Errorf("the source in %q: %w", text, err)
	}
	if len(fields) == 4 {
		parsed.asked = fields[3]
	}
	return parsed, nil
}

// judge returns the verdict for an error and its ICMP error.
func judge(err error, icmp ICMP) Verdict {
	if (icmp != ICMP{}) {
		return icmp.verdict()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EPERM):
		// The kernel returns EPERM if the sender's own output chain drops the packet.
		return Dropped
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.EACCES):
		return Refused
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return Unreachable
	default:
		return Unsent
	}
}

// verdict returns the verdict for an ICMP error: Unreachable for an error about the
// route or the host, Refused for an error about the port, protocol or a rule.
func (i ICMP) verdict() Verdict {
	unreachable := i.Type == 3 && (i.Code == 0 || i.Code == 1) // network, host
	if i.From.Is6() {
		unreachable = i.Type == 3 || i.Type == 1 && (i.Code == 0 || i.Code == 3 || i.Code == 6) // hop limit; no route, address, reject route
	}
	if unreachable || !i.From.Is6() && i.Type == 11 {
		return Unreachable
	}
	return Refused
}
