//go:build linux

package app

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// The flags of TCP (RFC 9293 section 3.1).
const (
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpPSH = 0x08
	tcpACK = 0x10
)

// strays are segments that a server might send on a connection and that conntrack classifies as invalid. Each is given as the
// difference to the sequence number and acknowledgement that would be valid.
var strays = []struct {
	name                     string
	sequence, acknowledgment uint32
}{
	{name: "before the window", sequence: 1<<32 - 100_000},
	{name: "beyond the window", sequence: 100_000_000},
	{name: "acknowledges what was not sent", sequence: 1<<32 - 100_000, acknowledgment: 1 << 29},
}

// TestKernelStraySegments checks that a segment outside the window of a connection through a Service is translated or dropped.
// The client would answer one with the pod's own address with a RST, which can end the connection.
func TestKernelStraySegments(t *testing.T) {
	t.Parallel()
	for mode, open := range opens(t) {
		t.Run(string(mode), func(t *testing.T) {
			w := newUDPWorld(t, open)
			server, client := w.lab.Node1.Pods[0], w.lab.Node1.Pods[1]
			w.serveEarly(server)
			for _, family := range netns.Families() {
				for _, stray := range strays {
					t.Run(family.String()+" "+stray.name, func(t *testing.T) {
						w := *w
						w.T = t
						probe := netns.Probe{From: client, To: netip.AddrPortFrom(netip.MustParseAddr(earlyIPs[family][0]), 53), Timeout: patience}
						flow, _ := w.open(probe, server)
						heard := w.listenRaw(server, family, endpointPort)
						if answer := flow.Ask(); answer.Verdict != netns.Answered {
							t.Fatal(answer)
						}
						last := heard.next(t)
						last.flags = tcpPSH | tcpACK
						last.sequence, last.acknowledgment = last.acknowledgment+stray.sequence, last.sequence+last.length+stray.acknowledgment
						heard.send(t, last)
						for range 2 { // what the client answers to the stray segment comes before its second question
							if answer := flow.Ask(); answer.Verdict != netns.Answered || answer.Endpoint != server.Name {
								t.Fatalf("the connection afterwards: %s", answer)
							}
						}
						for questions := 0; questions < 2; {
							s := heard.next(t)
							if s.flags&tcpRST != 0 {
								t.Fatal("the client sent a RST")
							}
							if s.length > 0 {
								questions++
							}
						}
					})
				}
			}
		})
	}
}

// TestKernelAsymmetricRoutes checks that segments pass if the node sees only one direction of their connection, although
// conntrack classifies them as invalid, whether the pod is the server or the client. iptables mode drops them, as kube-proxy
// does.
func TestKernelAsymmetricRoutes(t *testing.T) {
	t.Parallel()
	w := newUDPWorld(t, opens(t)[config.ProxyModeNFTables])
	pod, peer := w.lab.Node1.Pods[0], w.lab.Client
	w.serveEarly(pod)
	// The peer's kernel does not know the connection; the node must not see its resets, which are the other direction.
	const silent = "table inet test { chain output { type filter hook output priority 0; tcp flags & rst == rst drop; }; }"
	if out, err := peer.Command("nft", silent).CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	for _, family := range netns.Families() {
		probe := netns.Probe{From: w.lab.Node1.Pods[1], To: netip.AddrPortFrom(netip.MustParseAddr(earlyIPs[family][0]), 53), Timeout: patience}
		w.open(probe, pod) // the pod is known to be an endpoint
		const port, ownPort = 50000, 40000
		from, to := w.listenRaw(pod, family, ownPort), w.listenRaw(peer, family, port)
		for _, s := range []segment{
			{port: endpointPort, flags: tcpSYN | tcpACK},
			{port: ownPort, flags: tcpSYN},
			{port: ownPort, flags: tcpACK, sequence: 7, acknowledgment: 1},
		} {
			s.client = netip.AddrPortFrom(peer.Addr(family), port)
			from.send(t, s)
			if got := to.next(t); got.client != netip.AddrPortFrom(pod.Addr(family), s.port) || got.flags != s.flags {
				t.Errorf("sent %+v, received %+v", s, got)
			}
		}
	}
}

// rawSocket sends TCP segments as a host's own, and receives those for one of its ports, beside its kernel.
type rawSocket struct {
	*net.IPConn
	own  netip.Addr
	port uint16
}

// endpointPort is that of every endpoint of endpointSlice.
const endpointPort = 5353

func (w *udpWorld) listenRaw(host *netns.Host, family netns.Family, port uint16) *rawSocket {
	w.Helper()
	network := map[netns.Family]string{netns.IPv4: "ip4:tcp", netns.IPv6: "ip6:tcp"}[family]
	s := &rawSocket{own: host.Addr(family), port: port}
	if err := host.Do(func() (err error) {
		s.IPConn, err = net.ListenIP(network, &net.IPAddr{IP: s.own.AsSlice()})
		return err
	}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { s.Close() })
	return s
}

// segment is what the test needs to know of a TCP segment between a client and the host.
type segment struct {
	client                           netip.AddrPort
	port                             uint16 // the host's
	sequence, acknowledgment, length uint32
	flags                            byte
}

// next waits for a client's next segment.
func (s *rawSocket) next(t *testing.T) segment {
	t.Helper()
	if err := s.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 2048); ; {
		n, from, err := s.ReadFromIP(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if n < 20 || binary.BigEndian.Uint16(buffer[2:]) != s.port {
			continue
		}
		client, _ := netip.AddrFromSlice(from.IP)
		return segment{client: netip.AddrPortFrom(client.Unmap(), binary.BigEndian.Uint16(buffer)), port: s.port, flags: buffer[13],
			sequence: binary.BigEndian.Uint32(buffer[4:]), acknowledgment: binary.BigEndian.Uint32(buffer[8:]),
			length: uint32(n) - uint32(buffer[12]>>4)*4}
	}
}

// send sends some bytes in a segment.
func (s *rawSocket) send(t *testing.T, to segment) {
	t.Helper()
	b := binary.BigEndian.AppendUint16(nil, to.port)
	b = binary.BigEndian.AppendUint16(b, to.client.Port())
	b = binary.BigEndian.AppendUint32(b, to.sequence)
	b = binary.BigEndian.AppendUint32(b, to.acknowledgment)
	b = append(b, 5<<4, to.flags, 2, 0, 0, 0, 0, 0) // a header of five words, a window, and room for the checksum
	b = append(b, "stray\n"...)
	binary.BigEndian.PutUint16(b[16:], s.checksum(to.client.Addr(), b))
	if _, err := s.WriteToIP(b, &net.IPAddr{IP: to.client.Addr().AsSlice()}); err != nil {
		t.Fatal(err)
	}
}

// checksum is that of a segment of even length with the pseudo header of either family (RFC 9293 section 3.1, RFC 8200
// section 8.1).
func (s *rawSocket) checksum(to netip.Addr, b []byte) uint16 {
	sum := uint32(len(b) + 6) // the protocol's number
	for _, part := range [][]byte{s.own.AsSlice(), to.AsSlice(), b} {
		for ; len(part) > 0; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}
