//go:build linux

package netns

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultTimeout is the time after which a probe counts as dropped. It is below the
// second after which TCP retransmits its SYN, so that one probe is one packet, and
// short enough for tests that wait for drops.
//
// Time in which the machine is overloaded does not count, so that a late answer is
// not taken for a drop: the wait can be up to 20 times as long on a very busy machine.
const DefaultTimeout = 400 * time.Millisecond

// Probe is a request to a server of [Host.Serve], which reports its name and the
// source that it sees. Every probe uses a new connection (for UDP a new flow, for
// SCTP a new association).
type Probe struct {
	// From is the sending host, To the destination.
	From *Host
	To   netip.AddrPort
	// Protocol is TCP when it is empty.
	Protocol Protocol
	// Source is the address and the port to send from. If either is zero, it is chosen
	// automatically. The address must be one of From's.
	Source netip.AddrPort
	// Timeout is the time after which a probe counts as dropped; 0 means
	// [DefaultTimeout], which also describes how the time is counted.
	Timeout time.Duration
	// Every is the time between two attempts of [Probe.Until]; 0 means a millisecond, or
	// 10 ms with a value of [PatienceVariable] above the default.
	Every time.Duration
	// Parallel is the number of concurrent probes of [Probe.Spread]; 0 means 32.
	Parallel int
}

// String describes the probe, such as "client to TCP 10.96.0.10:80".
func (p Probe) String() string {
	p = p.defaults()
	name := "nobody"
	if p.From != nil {
		name = p.From.Name
	}
	switch address, port := p.Source.Addr(), p.Source.Port(); {
	case address.IsValid() && port != 0:
		name += fmt.Sprintf(" (%v)", p.Source)
	case address.IsValid():
		name += fmt.Sprintf(" (%v)", address)
	case port != 0:
		name += fmt.Sprintf(" (port %d)", port)
	}
	return fmt.Sprintf("%s to %s %v", name, p.Protocol, p.To)
}

func (p Probe) defaults() Probe {
	if p.Protocol == "" {
		p.Protocol = TCP
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.Parallel == 0 {
		p.Parallel = 32
	}
	p.To = netip.AddrPortFrom(p.To.Addr().Unmap(), p.To.Port())
	return p
}

func (p Probe) validate() error {
	switch {
	case p.From == nil:
		return errors.New("a probe needs a host to send from")
	case !p.To.IsValid() || p.To.Port() == 0:
		return fmt.Errorf("a probe needs an address and port, not %v", p.To)
	case p.Protocol != TCP && p.Protocol != UDP && p.Protocol != SCTP:
		return fmt.Errorf("unknown protocol %q: use TCP, UDP or SCTP", p.Protocol)
	case p.Source.Addr().IsValid() && FamilyOf(p.Source.Addr()) != FamilyOf(p.To.Addr()):
		return fmt.Errorf("a probe to %v cannot be sent from %v", p.To, p.Source)
	}
	return nil
}

// Send sends the probe once, and waits for the answer for at most the probe's Timeout.
func (p Probe) Send() Answer {
	flow, answer := p.Open()
	if flow != nil {
		flow.Close()
	}
	return answer
}

// Open sends the probe once. If it is answered, Open returns the open connection, on
// which more requests can be sent; otherwise the flow is nil.
func (p Probe) Open() (*Flow, Answer) {
	p = p.defaults()
	if err := p.validate(); err != nil {
		return nil, Answer{Err: err}
	}
	sent := time.Now()
	flow := &Flow{probe: p}
	var err error
	if flow.socket, err = p.dial(); err != nil {
		return nil, Answer{Sent: sent, Verdict: judge(err, ICMP{}), Err: err, Latency: time.Since(sent)}
	}
	if p.Protocol == SCTP {
		flow.associate()
	}
	answer := flow.ask(sent, p.Protocol != TCP)
	if answer.Verdict != Answered {
		flow.Close()
		return nil, answer
	}
	return flow, answer
}

// Flow is an open connection of a probe. It must not be used by several goroutines
// concurrently.
type Flow struct {
	probe  Probe
	socket *socket
	port   uint16 // SCTP: the source port
	tag    uint32 // SCTP: our tag
	peer   uint32 // SCTP: the tag of the last answer's sender
}

// Ask sends another request on the same connection: the same TCP connection, the same
// two UDP sockets, an SCTP INIT with the same ports and tag.
func (f *Flow) Ask() Answer { return f.ask(time.Now(), true) }

// Ended reports whether the server has closed the TCP connection, as a client knows before it uses it again.
func (f *Flow) Ended() (ended bool) {
	_ = f.socket.raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = n == 0 && err == nil
	})
	return ended
}

// Close closes the flow, with a TCP reset or an SCTP ABORT, so that neither end keeps
// the ports.
func (f *Flow) Close() error {
	switch f.probe.Protocol {
	case TCP:
		_ = f.socket.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		})
	case SCTP:
		if f.peer != 0 {
			_ = f.socket.send(sctpPacket{source: f.port, destination: f.probe.To.Port(), tag: f.peer, chunk: sctpAbort}.encode())
		}
	}
	return f.socket.Close()
}

// associate chooses the ports and the tag of an SCTP flow. The kernel does not know
// them, so the flow must also check which ICMP errors belong to it.
func (f *Flow) associate() {
	f.port = f.probe.Source.Port()
	if f.port == 0 {
		f.port = f.probe.From.nextPort()
	}
	f.tag = 1 + rand.Uint32N(1<<32-1) // never zero
	f.socket.mine = func(offending []byte) bool {
		return len(offending) < 4 || uint16(offending[0])<<8|uint16(offending[1]) == f.port
	}
}

// ask sends a request, unless the peer sends first, and waits for the answer.
func (f *Flow) ask(sent time.Time, speak bool) Answer {
	answer := Answer{Sent: sent}
	said, icmp, err := f.converse(speak)
	answer.Latency = time.Since(sent)
	answer.Local = f.socket.local()
	answer.Denied = f.socket.denied
	if f.probe.Protocol == SCTP {
		answer.Local = netip.AddrPortFrom(answer.Local.Addr(), f.port)
	}
	if err == nil && icmp == (ICMP{}) {
		answer.Verdict = Answered
		answer.Endpoint, answer.Reached, answer.Source = said.endpoint, said.reached, said.source
		return answer
	}
	answer.ICMP, answer.Err = icmp, err
	answer.Verdict = judge(err, icmp)
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		answer.Verdict = Broken
	}
	return answer
}

// converse sends a request and reads until its answer.
func (f *Flow) converse(speak bool) (line, ICMP, error) {
	if f.socket.early != nil {
		return line{}, f.socket.pending(), f.socket.early
	}
	if err := f.socket.SetDeadline(time.Time{}); err != nil {
		return line{}, ICMP{}, err
	}
	stop := f.probe.From.lab.patience.after(f.probe.Timeout, func() { _ = f.socket.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if f.probe.Protocol == TCP && !speak {
		if icmp, err := f.socket.connected(); err != nil || icmp != (ICMP{}) {
			return line{}, icmp, err
		}
	}
	question := ""
	if speak {
		question = strconv.FormatUint(rand.Uint64(), 36)
		if err := f.say(question); err != nil {
			return line{}, f.socket.pending(), err
		}
	}
	for {
		said, icmp, err := f.hear()
		// Ignore late answers to earlier requests.
		if err != nil || icmp != (ICMP{}) || said.asked == question || f.probe.Protocol == SCTP {
			return said, icmp, err
		}
	}
}

// say sends a request.
func (f *Flow) say(question string) error {
	switch f.probe.Protocol {
	case SCTP:
		return f.socket.send(sctpPacket{source: f.port, destination: f.probe.To.Port(), chunk: sctpInit, initiate: f.tag}.encode())
	default:
		return f.socket.send([]byte(question + "\n"))
	}
}

// hear reads one answer.
func (f *Flow) hear() (line, ICMP, error) {
	var text strings.Builder
	buffer := make([]byte, 1024)
	for {
		n, icmp, err := f.socket.receive(buffer)
		if err != nil || icmp != (ICMP{}) {
			return line{}, icmp, err
		}
		switch f.probe.Protocol {
		case SCTP:
			said, ours, err := f.hearSCTP(buffer[:n])
			if ours {
				return said, ICMP{}, err
			}
			continue
		case TCP:
			if n == 0 {
				return line{}, ICMP{}, io.EOF
			}
		}
		text.Write(buffer[:n])
		if strings.HasSuffix(text.String(), "\n") {
			said, err := parseLine(text.String())
			return said, ICMP{}, err
		}
	}
}

// hearSCTP parses a packet; raw IPv4 sockets return packets with their IP header.
// ours is false for packets of other associations.
func (f *Flow) hearSCTP(packet []byte) (said line, ours bool, err error) {
	if f.probe.To.Addr().Is4() {
		if packet, err = stripIPv4(packet); err != nil {
			return line{}, false, err
		}
	}
	p, err := decodeSCTP(packet)
	if err != nil || p.destination != f.port || p.source != f.probe.To.Port() || p.tag != f.tag {
		return line{}, false, err
	}
	switch p.chunk {
	case sctpAbort:
		return line{}, true, unix.ECONNREFUSED
	case sctpInitAck:
		f.peer = p.initiate
		said, err = parseLine(string(p.cookie))
		return said, true, err
	default:
		return line{}, false, nil
	}
}

// stripIPv4 removes the IPv4 header of a packet.
func stripIPv4(packet []byte) ([]byte, error) {
	if len(packet) < 20 || len(packet) < int(packet[0]&0xf)*4 {
		return nil, fmt.Errorf("truncated IPv4 packet of %d bytes", len(packet))
	}
	return packet[int(packet[0]&0xf)*4:], nil
}
