//go:build linux

package trace

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// decoder decodes events. It holds the names of interfaces by their indexes, because the kernel answers with a list of all interfaces, and
// an event names one or two.
type decoder map[uint32]string

// decode decodes a message. ok is false if the message is not the event of a packet.
func (d decoder) decode(m netlink.Message) (e Event, ok bool) {
	if nf.CommandOf(m) != unix.NFT_MSG_TRACE {
		return Event{}, false
	}
	e.Family = nf.Family(m.Family).String()
	var h Headers
	var network, transport []byte
	proto := uint32(m.Family)
	a := m.Attrs()
	for a.Next() {
		switch a.Type {
		case unix.NFTA_TRACE_ID:
			e.Packet = a.Uint32()
		case unix.NFTA_TRACE_TYPE:
			e.Kind = Kind(a.Uint32())
		case unix.NFTA_TRACE_TABLE:
			e.Table = a.String()
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = a.String()
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.Handle = a.Uint64()
		case unix.NFTA_TRACE_VERDICT:
			if nested := a.Nested(); nested.Find(unix.NFTA_VERDICT_CODE) != nil { // 0 is drop
				e.Verdict = verdictName(int32(nested.FindUint32(unix.NFTA_VERDICT_CODE)))
			}
			e.To = netlink.String(netlink.Attr(a.Data, unix.NFTA_VERDICT_CHAIN))
		case unix.NFTA_TRACE_POLICY:
			e.Verdict = verdictName(int32(a.Uint32()))
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = a.Data
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = a.Data
		case unix.NFTA_TRACE_NFPROTO:
			proto = a.Uint32()
		case unix.NFTA_TRACE_IIF:
			h.In = d.named(a.Uint32())
		case unix.NFTA_TRACE_OIF:
			h.Out = d.named(a.Uint32())
		case unix.NFTA_TRACE_MARK:
			h.Mark = a.Uint32()
		}
	}
	if a.Malformed() || e.Table == "" || e.Chain == "" {
		return Event{}, false
	}
	if h.addresses(byte(proto), network) {
		h.ports(transport)
		e.Headers = &h
	}
	return e, true
}

// named returns the name of an interface, or its index if it is gone.
func (d decoder) named(index uint32) string {
	if d[index] == "" {
		i, err := net.InterfaceByIndex(int(index))
		if err != nil {
			return fmt.Sprintf("interface %d", index)
		}
		d[index] = i.Name
	}
	return d[index]
}

// addresses reads an IP header; it returns false if it is none.
func (h *Headers) addresses(family byte, b []byte) bool {
	var source, destination netip.Addr
	switch {
	case len(b) >= 20 && (family == unix.NFPROTO_IPV4 || b[0]>>4 == 4):
		h.Protocol = b[9]
		source, destination = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	case len(b) >= 40 && (family == unix.NFPROTO_IPV6 || b[0]>>4 == 6):
		h.Protocol = b[6] // with extension headers, the first one's: then ports are unknown
		source, destination = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	default:
		return false
	}
	h.Source, h.Destination = netip.AddrPortFrom(source, 0), netip.AddrPortFrom(destination, 0)
	return true
}

// tcpFlags is the offset of the flags in the header of TCP.
const tcpFlags = 13

// ports reads the header of a protocol with ports.
func (h *Headers) ports(b []byte) {
	switch h.Protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, unix.IPPROTO_DCCP:
	default:
		return
	}
	if len(b) < 4 {
		return
	}
	h.Source = netip.AddrPortFrom(h.Source.Addr(), binary.BigEndian.Uint16(b))
	h.Destination = netip.AddrPortFrom(h.Destination.Addr(), binary.BigEndian.Uint16(b[2:]))
	if h.Protocol == unix.IPPROTO_TCP && len(b) > tcpFlags {
		h.Flags = b[tcpFlags]
	}
}

// verdictName is the name of a verdict: one of nf_tables, which are negative, or of netfilter.
func verdictName(code int32) string {
	names := map[int32]string{
		unix.NFT_CONTINUE: "continue", unix.NFT_BREAK: "continue", unix.NFT_JUMP: "jump", unix.NFT_GOTO: "goto", unix.NFT_RETURN: "return",
		0: "drop", 1: "accept", 2: "stolen", 3: "queue", 4: "repeat",
	}
	if code >= 0 {
		code &= 0xff // the rest is a number of an error or of a queue
	}
	if name, ok := names[code]; ok {
		return name
	}
	return fmt.Sprintf("verdict %d", code)
}
