package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Constants of linux/netfilter/nfnetlink_conntrack.h that the library lacks.
const (
	// ctaFilter holds ctaFilterOrigFlags, which select the parts of CTA_TUPLE_ORIG that filter a dump.
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
	// filterProtocol is the flag of CTA_PROTO_NUM (net/netfilter/nf_internals.h).
	filterProtocol = 1 << 3
	// ctaStatusMask selects the bits of CTA_STATUS that filter a dump.
	ctaStatusMask = 26
)

// Constants of linux/netfilter/nf_conntrack_common.h and nf_conntrack_tcp.h that the library lacks.
const (
	statusSeenReply = 1 << 1 // IPS_SEEN_REPLY
	statusDstNAT    = 1 << 5 // IPS_DST_NAT
	stateSynSent    = 1      // TCP_CONNTRACK_SYN_SENT
	stateTimeWait   = 7      // TCP_CONNTRACK_TIME_WAIT
	stateClose      = 8      // TCP_CONNTRACK_CLOSE
)

// entry is a Flow with further attributes.
type entry struct {
	Flow
	protocol uint8
	// status holds the IPS_ bits, state that of TCP.
	status uint32
	state  uint8
	// key are the attributes that identify this entry: its reply tuple, its zone and its CTA_ID.
	key []byte
}

// is reports whether the entry is of a kind.
func (e *entry) is(kind Kind) bool {
	if e.protocol != kind.protocol() {
		return false
	}
	switch kind {
	case UnansweredTCP:
		return e.state == stateSynSent && e.status&(statusSeenReply|statusDstNAT) == 0 && !e.Translated()
	case TranslatedTCP, TranslatedSCTP:
		return e.open() && e.Translated()
	}
	return true
}

// open reports whether one end may still send: it is no TCP connection that both have closed.
func (e *entry) open() bool {
	return e.protocol != unix.IPPROTO_TCP || e.state != stateTimeWait && e.state != stateClose
}

// protocol is the IP protocol of a kind's entries.
func (k Kind) protocol() uint8 {
	return [...]uint8{UDP: unix.IPPROTO_UDP, UnansweredTCP: unix.IPPROTO_TCP, TranslatedTCP: unix.IPPROTO_TCP, TranslatedSCTP: unix.IPPROTO_SCTP}[k]
}

// parse reads one entry of a dump into e, whose memory it reuses.
func (e *entry) parse(a netlink.Attrs) (err error) {
	*e = entry{key: e.key[:0]}
	for err == nil && a.Next() {
		var t tuple
		switch a.Type {
		case nl.CTA_TUPLE_ORIG:
			t, err = parseTuple(a.Nested())
			e.Source, e.Destination, e.protocol = t.source, t.destination, t.protocol
		case nl.CTA_TUPLE_REPLY:
			e.key = netlink.AppendBytes(e.key, a.Type|unix.NLA_F_NESTED, a.Data)
			t, err = parseTuple(a.Nested())
			e.ReplySource = t.source
		case nl.CTA_ZONE, nl.CTA_ID:
			e.key = netlink.AppendBytes(e.key, a.Type, a.Data)
		case nl.CTA_STATUS:
			e.status = a.Uint32()
		case nl.CTA_PROTOINFO:
			if state := netlink.Attr(netlink.Attr(a.Data, nl.CTA_PROTOINFO_TCP), nl.CTA_PROTOINFO_TCP_STATE); len(state) == 1 {
				e.state = state[0]
			}
		}
	}
	if a.Malformed() {
		return netlink.ErrMalformed
	}
	return err
}

// tuple holds the two ends of one direction.
type tuple struct {
	source, destination netip.AddrPort
	protocol            uint8
}

func parseTuple(parts netlink.Attrs) (tuple, error) {
	var protocol uint8
	var from, to netip.Addr
	var fromPort, toPort uint16
	malformed := false
	for parts.Next() {
		a := parts.Nested()
		for a.Next() {
			switch {
			case parts.Type == nl.CTA_TUPLE_IP && (a.Type == nl.CTA_IP_V4_SRC || a.Type == nl.CTA_IP_V6_SRC):
				from, _ = netip.AddrFromSlice(a.Data)
			case parts.Type == nl.CTA_TUPLE_IP && (a.Type == nl.CTA_IP_V4_DST || a.Type == nl.CTA_IP_V6_DST):
				to, _ = netip.AddrFromSlice(a.Data)
			case parts.Type == nl.CTA_TUPLE_PROTO && a.Type == nl.CTA_PROTO_NUM && len(a.Data) == 1:
				protocol = a.Data[0]
			case parts.Type == nl.CTA_TUPLE_PROTO && a.Type == nl.CTA_PROTO_SRC_PORT:
				fromPort = a.Uint16()
			case parts.Type == nl.CTA_TUPLE_PROTO && a.Type == nl.CTA_PROTO_DST_PORT:
				toPort = a.Uint16()
			}
		}
		malformed = malformed || a.Malformed()
	}
	if malformed || parts.Malformed() {
		return tuple{}, netlink.ErrMalformed
	}
	return tuple{netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort), protocol}, nil
}

// appendFilter appends the attributes that restrict a dump to a kind. The kernel cannot filter by the state of TCP.
func (k Kind) appendFilter(b []byte) []byte {
	switch k {
	case UnansweredTCP:
		b = netlink.AppendUint32(b, nl.CTA_STATUS, 0)
		b = netlink.AppendUint32(b, ctaStatusMask, statusSeenReply|statusDstNAT)
	case TranslatedTCP, TranslatedSCTP:
		b = appendTranslated(b)
	}
	b, ends := netlink.BeginNest(b, nl.CTA_TUPLE_ORIG)
	b, protocol := netlink.BeginNest(b, nl.CTA_TUPLE_PROTO)
	b = netlink.AppendBytes(b, nl.CTA_PROTO_NUM, []byte{k.protocol()})
	netlink.EndNest(b, protocol)
	netlink.EndNest(b, ends)
	b, filter := netlink.BeginNest(b, ctaFilter)
	b = netlink.AppendBytes(b, ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, filterProtocol))
	netlink.EndNest(b, filter)
	return b
}
