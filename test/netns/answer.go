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

// Protocols are all three.
func Protocols() []Protocol { return []Protocol{TCP, UDP, SCTP} }

// Family is an IP family.
type Family int

// The IP families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families are both, IPv4 first.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf tells an address's family.
func FamilyOf(address netip.Addr) Family {
	if address.Is4() {
		return IPv4
	}
	return IPv6
}

// String is "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

// Verdict is what became of a probe.
type Verdict int

const (
	// Unsent tells that the probe could not be made; Answer.Err says why.
	Unsent Verdict = iota
	// Answered tells that an endpoint answered.
	Answered
	// Refused tells that something said no: a TCP reset, an SCTP ABORT, or an ICMP error
	// for the port, the protocol or by an administrator's rule (Answer.ICMP).
	Refused
	// Unreachable tells that an ICMP error said that there is no way to the host or the
	// network (Answer.ICMP), or the sender itself has no route.
	Unreachable
	// Dropped tells that nothing came back within the time.
	Dropped
	// Broken tells that a connection was made, and ended without an answer.
	Broken
)

// String is the verdict in lower case, such as "answered".
func (v Verdict) String() string {
	names := [...]string{"unsent", "answered", "refused", "unreachable", "dropped", "broken"}
	if v < 0 || int(v) >= len(names) {
		return fmt.Sprintf("verdict %d", int(v))
	}
	return names[v]
}

// ICMP is an ICMP or ICMPv6 error message, by the numbers of RFC 792 and RFC 4443.
// The zero value is none.
type ICMP struct {
	Type, Code uint8
	// From is who sent it.
	From netip.Addr
}

// String tells type, code and sender, such as "ICMP 3/3 from 172.18.0.11".
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

// Answer is what came back to a probe.
type Answer struct {
	Verdict Verdict
	// Endpoint is the name of the host that answered.
	Endpoint string
	// Reached is the address and port that the endpoint was met at.
	Reached netip.AddrPort
	// Source is the address and port that the endpoint saw the probe come from.
	Source netip.AddrPort
	// Local is the address and port that the probe was sent from, as far as known.
	Local netip.AddrPort
	// ICMP is the error message, if one came.
	ICMP ICMP
	// Sent is when the probe was sent, Latency the time from then to the verdict.
	Sent    time.Time
	Latency time.Duration
	// Err is the system's own word where the verdict is not Answered.
	Err error
}

// String is the answer for people, in one line.
func (a Answer) String() string {
	switch {
	case a.Verdict == Answered:
		return fmt.Sprintf("answered by %s at %v, source seen %v, %v", a.Endpoint, a.Reached, a.Source, a.Latency.Round(time.Microsecond))
	case a.ICMP != ICMP{}:
		return fmt.Sprintf("%v (%v) after %v", a.Verdict, a.ICMP, a.Latency.Round(time.Microsecond))
	case a.Err != nil:
		return fmt.Sprintf("%v (%v) after %v", a.Verdict, a.Err, a.Latency.Round(time.Microsecond))
	default:
		return a.Verdict.String()
	}
}

// line is what a server answers: its name, the address and port it was met at, the
// source it saw, and what it was asked.
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
		return line{}, fmt.Errorf("%q is not the answer of a laboratory server", text)
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

// judge tells the verdict of an error, given the ICMP error that came with it.
func judge(err error, icmp ICMP) Verdict {
	if (icmp != ICMP{}) {
		return icmp.verdict()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EPERM):
		// EPERM is how the kernel tells a sender that its own output chain dropped.
		return Dropped
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.EACCES):
		return Refused
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return Unreachable
	default:
		return Unsent
	}
}

// verdict tells what an ICMP error means for the one who gets it: Unreachable when
// it speaks of the way, Refused when it speaks of the port, protocol or a rule.
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
