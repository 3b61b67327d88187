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

// DefaultTimeout is how long a probe waits before it calls its packet dropped:
// below the second after which TCP sends its SYN again, so that one probe is one
// packet, and short enough for a drop to be waited for.
//
// Time in which the machine does not keep pace is not counted, so that late is not
// taken for dropped: a wait may be up to 20 times as long on a very busy machine.
const DefaultTimeout = 400 * time.Millisecond

// Probe is a question that is sent to a server of [Host.Serve]: who answers, and
// whom does it see? Every probe is a connection (for UDP a flow, for SCTP an
// association) of its own.
type Probe struct {
	// From is the host that asks, To the address and port asked.
	From *Host
	To   netip.AddrPort
	// Protocol is TCP when it is empty.
	Protocol Protocol
	// Source is the address and the port to send from. Either may be zero, and is
	// then the kernel's choice. The address must be one of From's.
	Source netip.AddrPort
	// Timeout until a probe is called dropped; 0 means [DefaultTimeout], which also
	// tells how it is counted.
	Timeout time.Duration
	// Parallel is how many probes of a [Probe.Spread] are under way at once; 0 means
	// 32.
	Parallel int
}

// String tells who asks whom, such as "client to TCP 10.96.0.10:80".
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
		return errors.New("a probe needs a host to be sent from")
	case !p.To.IsValid() || p.To.Port() == 0:
		return fmt.Errorf("a probe needs an address and port to ask, not %v", p.To)
	case p.Protocol != TCP && p.Protocol != UDP && p.Protocol != SCTP:
		return fmt.Errorf("the protocol is %q: use TCP, UDP or SCTP", p.Protocol)
	case p.Source.Addr().IsValid() && FamilyOf(p.Source.Addr()) != FamilyOf(p.To.Addr()):
		return fmt.Errorf("a probe to %v cannot be sent from %v", p.To, p.Source)
	}
	return nil
}

// Send asks once, and waits for the answer for the probe's Timeout at most.
func (p Probe) Send() Answer {
	flow, answer := p.Open()
	if flow != nil {
		flow.Close()
	}
	return answer
}

// Open asks once, and keeps the connection when it was answered, to ask again on
// it. The flow is nil otherwise.
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

// Flow is a connection of a probe that is kept. It is not for use by several
// goroutines at once.
type Flow struct {
	probe  Probe
	socket *socket
	port   uint16 // SCTP: the source port
	tag    uint32 // SCTP: our tag
	peer   uint32 // SCTP: the tag of who answered last
}

// Ask asks again on the same connection: the same TCP connection, the same two UDP
// sockets, an SCTP INIT with the same ports and tag.
func (f *Flow) Ask() Answer { return f.ask(time.Now(), true) }

// Close ends the flow. TCP is reset, SCTP aborted, so that neither end keeps the
// ports.
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

// associate gives an SCTP flow its ports and tag. The kernel knows nothing of
// these, so the flow chooses, and looks at every ICMP error itself.
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

// ask asks, unless the peer speaks first, and waits for the answer.
func (f *Flow) ask(sent time.Time, speak bool) Answer {
	answer := Answer{Sent: sent}
	said, icmp, err := f.converse(speak)
	answer.Latency = time.Since(sent)
	answer.Local = f.socket.local()
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

// converse sends the question and reads until its answer.
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
		// Late answers to earlier questions are passed over.
		if err != nil || icmp != (ICMP{}) || said.asked == question || f.probe.Protocol == SCTP {
			return said, icmp, err
		}
	}
}

// say sends a question.
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

// hearSCTP reads an IP packet; a raw IPv4 socket gives it with its IP header.
// Other associations' packets come by, too.
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

// stripIPv4 takes the IPv4 header off a packet.
func stripIPv4(packet []byte) ([]byte, error) {
	if len(packet) < 20 || len(packet) < int(packet[0]&0xf)*4 {
		return nil, fmt.Errorf("an IPv4 packet of %d bytes", len(packet))
	}
	return packet[int(packet[0]&0xf)*4:], nil
}
