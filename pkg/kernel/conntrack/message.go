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

// entry is a Flow with what the kernel needs to find it again.
type entry struct {
	Flow
	protocol uint8
	// key are the attributes that tell this entry from all others: the two ends of its answers, its zone and its
	// identity.
	key []byte
}

// parse reads one entry of a dump. It reuses the entry's memory.
func (e *entry) parse(message []byte) error {
	if len(message) < genmsgLen {
		return errMalformed
	}
	*e = entry{key: e.key[:0]}
	return eachAttribute(message[genmsgLen:], func(a attribute) error {
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
		}
		return nil
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

// udpOnly are the attributes that make a dump tell UDP entries only.
func udpOnly() []nl.NetlinkRequestData {
	ends := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	protocol := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	protocol.AddRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_UDP})
	ends.AddChild(protocol)
	filter := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
	filter.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(filterProtocol))
	return []nl.NetlinkRequestData{ends, filter}
}
