package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What linux/netfilter/nfnetlink_conntrack.h has and the library lacks.
const (
	// ctaFilter holds ctaFilterOrigFlags, which tell what of CTA_TUPLE_ORIG a dump goes by.
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
	// filterProtocol is the flag that says: by CTA_PROTO_NUM (net/netfilter/nf_internals.h).
	filterProtocol = 1 << 3
	// ctaStatusMask says which bits of CTA_STATUS a dump goes by.
	ctaStatusMask = 26
)

// What linux/netfilter/nf_conntrack_common.h and nf_conntrack_tcp.h have and the library lacks.
const (
	statusSeenReply = 1 << 1 // IPS_SEEN_REPLY
	statusDstNAT    = 1 << 5 // IPS_DST_NAT
	stateSynSent    = 1      // TCP_CONNTRACK_SYN_SENT
)

// genmsgLen is the size of struct nfgenmsg, which comes before the attributes.
const genmsgLen = 4

// errMalformed is an answer that is not as the kernel makes them.
var errMalformed = errors.New("the kernel's answer cannot be read")

// attribute is one netlink attribute (struct nlattr).
type attribute struct {
	kind uint16
	data []byte
	// whole is the attribute with its header and padding, to be sent back as it is.
	whole []byte
}

// nextAttribute splits the first attribute off a series.
func nextAttribute(series []byte) (a attribute, rest []byte, err error) {
	if len(series) < unix.SizeofNlAttr {
		return a, nil, errMalformed
	}
	length := int(binary.NativeEndian.Uint16(series))
	padded := (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1)
	if length < unix.SizeofNlAttr || length > len(series) {
		return a, nil, errMalformed
	}
	padded = min(padded, len(series))
	a.kind = binary.NativeEndian.Uint16(series[2:]) & nl.NLA_TYPE_MASK
	a.data, a.whole = series[unix.SizeofNlAttr:length], series[:padded]
	return a, series[padded:], nil
}

// eachAttribute visits a series of attributes.
func eachAttribute(series []byte, visit func(attribute) error) error {
	for len(series) > 0 {
		a, rest, err := nextAttribute(series)
		if err == nil {
			err = visit(a)
		}
		if err != nil {
			return err
		}
		series = rest
	}
	return nil
}

// entry is a Flow with what else the kernel knows of it.
type entry struct {
	Flow
	protocol uint8
	// status are the IPS_ bits, and state the state of TCP.
	status uint32
	state  uint8
	// key are the attributes that identify this entry: its reply tuple, its zone and its CTA_ID.
	key []byte
}

// is reports whether the entry is of a kind.
func (e *entry) is(kind Kind) bool {
	if kind == UDP {
		return e.protocol == unix.IPPROTO_UDP
	}
	return e.protocol == unix.IPPROTO_TCP && e.state == stateSynSent && e.status&(statusSeenReply|statusDstNAT) == 0 && !e.Translated()
}

// parse reads one entry of a dump. It reuses the entry's memory.
func (e *entry) parse(message []byte) error {
	if len(message) < genmsgLen {
		return errMalformed
	}
	*e = entry{key: e.key[:0]}
	err := eachAttribute(message[genmsgLen:], func(a attribute) error {
		switch a.kind {
		case nl.CTA_TUPLE_ORIG:
			t, err := parseTuple(a.data)
			e.Source, e.Destination, e.protocol = t.source, t.destination, t.protocol
			return err
		case nl.CTA_TUPLE_REPLY:
			e.key = append(e.key, a.whole...)
			t, err := parseTuple(a.data)
			e.ReplySource = t.source
			return err
		case nl.CTA_ZONE, nl.CTA_ID:
			e.key = append(e.key, a.whole...)
		case nl.CTA_STATUS:
			if len(a.data) < 4 {
				return errMalformed
			}
			e.status = binary.BigEndian.Uint32(a.data)
		case nl.CTA_PROTOINFO:
			return e.parseState(a.data)
		}
		return nil
	})
	if e.protocol == unix.IPPROTO_TCP {
		e.Kind = UnansweredTCP // the only TCP entries that anybody is shown
	}
	return err
}

// parseState reads the state of TCP from CTA_PROTOINFO.
func (e *entry) parseState(data []byte) error {
	return eachAttribute(data, func(info attribute) error {
		if info.kind != nl.CTA_PROTOINFO_TCP {
			return nil
		}
		return eachAttribute(info.data, func(a attribute) error {
			if a.kind == nl.CTA_PROTOINFO_TCP_STATE && len(a.data) >= 1 {
				e.state = a.data[0]
			}
			return nil
		})
	})
}

// tuple is the two ends of one direction.
type tuple struct {
	source, destination netip.AddrPort
	protocol            uint8
}

func parseTuple(data []byte) (tuple, error) {
	var protocol uint8
	var from, to netip.Addr
	var fromPort, toPort uint16
	err := eachAttribute(data, func(part attribute) error {
		return eachAttribute(part.data, func(a attribute) error {
			switch {
			case part.kind == nl.CTA_TUPLE_IP && (a.kind == nl.CTA_IP_V4_SRC || a.kind == nl.CTA_IP_V6_SRC):
				from, _ = netip.AddrFromSlice(a.data)
			case part.kind == nl.CTA_TUPLE_IP && (a.kind == nl.CTA_IP_V4_DST || a.kind == nl.CTA_IP_V6_DST):
				to, _ = netip.AddrFromSlice(a.data)
			case part.kind == nl.CTA_TUPLE_PROTO && a.kind == nl.CTA_PROTO_NUM && len(a.data) >= 1:
				protocol = a.data[0]
			case part.kind == nl.CTA_TUPLE_PROTO && a.kind == nl.CTA_PROTO_SRC_PORT && len(a.data) >= 2:
				fromPort = binary.BigEndian.Uint16(a.data)
			case part.kind == nl.CTA_TUPLE_PROTO && a.kind == nl.CTA_PROTO_DST_PORT && len(a.data) >= 2:
				toPort = binary.BigEndian.Uint16(a.data)
			}
			return nil
		})
	})
	return tuple{netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort), protocol}, err
}

// filter are the attributes that make the kernel leave other entries than those of a kind out of a dump. It knows no
// filter for the state of TCP.
func filter(kind Kind) []nl.NetlinkRequestData {
	number := byte(unix.IPPROTO_UDP)
	var status []nl.NetlinkRequestData
	if kind == UnansweredTCP {
		number = unix.IPPROTO_TCP
		status = []nl.NetlinkRequestData{
			nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(0)),
			nl.NewRtAttr(ctaStatusMask, nl.BEUint32Attr(statusSeenReply|statusDstNAT)),
		}
	}
	ends := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	protocol := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	protocol.AddRtAttr(nl.CTA_PROTO_NUM, []byte{number})
	ends.AddChild(protocol)
	by := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
	by.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(filterProtocol))
	return append(status, ends, by)
}
