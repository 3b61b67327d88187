package nftables

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// dialect holds the differences between the rules of the families.
type dialect struct {
	family    cluster.Family
	number    nf.Family
	ip        string // the name of its header
	addr      string // the type of its addresses
	localhost string // its loopback addresses
	any       netip.Addr
}

func dialectOf(family cluster.Family) dialect {
	if family == cluster.IPv6 {
		return dialect{family, nf.IPv6, "ip6", "ipv6_addr", "::1", netip.IPv6Unspecified()}
	}
	return dialect{family, nf.IPv4, "ip", "ipv4_addr", "127.0.0.0/8", netip.IPv4Unspecified()}
}

// element is one element of a set, decoded. The columns of the set determine which fields are used.
type element struct {
	// frontend is the key, or a part of it. Sets of addresses use only its Addr.
	frontend plan.Frontend
	slot     uint32
	// high and low are the constants that name a pool.
	high, low uint32
	// addr and port are an endpoint's.
	addr netip.Addr
	port uint16
	// goes and comment are not columns: the verdict, and the comment of the element.
	goes    target
	comment string
}

// member is an endpoint of a pool.
func member(pool poolID, endpoint netip.AddrPort) element {
	high, low := pool.words()
	return element{high: high, low: low, addr: endpoint.Addr(), port: endpoint.Port()}
}

func (e *element) endpoint() netip.AddrPort { return netip.AddrPortFrom(e.addr, e.port) }

func (e *element) pool() poolID { return poolID(e.high)<<32 | poolID(e.low) }

// column is one field of a key or value. In the kernel each field begins at a multiple of 4 bytes and is padded with
// zeros. Fields are in network order, except numbers: numgen writes integers of the host.
type column struct {
	// expr is the expression for typeof, typ the name of the type.
	expr, typ string
	// width is the number of bytes that encode appends and decode reads.
	width  int
	encode func(b []byte, e *element) []byte
	decode func(field []byte, e *element)
	text   func(e *element) string
}

// addrColumn is an address in a field of the IP header.
func (d dialect) addrColumn(field string, at func(*element) *netip.Addr) column {
	return column{
		expr: d.ip + " " + field, typ: d.addr, width: d.any.BitLen() / 8,
		encode: func(b []byte, e *element) []byte { return appendAddr(b, *at(e)) },
		decode: func(field []byte, e *element) { *at(e), _ = netip.AddrFromSlice(field) },
		text:   func(e *element) string { return at(e).String() },
	}
}

func protocolColumn() column {
	return column{
		expr: "meta l4proto", typ: "inet_proto", width: 4,
		encode: func(b []byte, e *element) []byte { return append(b, byte(e.frontend.Protocol), 0, 0, 0) },
		decode: func(field []byte, e *element) { e.frontend.Protocol = cluster.Protocol(field[0]) },
		text:   func(e *element) string { return strings.ToLower(e.frontend.Protocol.String()) },
	}
}

func portColumn(at func(*element) *uint16) column {
	return column{
		expr: "th dport", typ: "inet_service", width: 4,
		encode: func(b []byte, e *element) []byte { return append(b, byte(*at(e)>>8), byte(*at(e)), 0, 0) },
		decode: func(field []byte, e *element) { *at(e) = binary.BigEndian.Uint16(field) },
		text:   func(e *element) string { return strconv.Itoa(int(*at(e))) },
	}
}

// numberColumn is a number from a rule. nft has an expression for its type, but no name.
func numberColumn(at func(*element) *uint32) column {
	return column{
		expr: "numgen random mod 2", width: 4,
		encode: func(b []byte, e *element) []byte { return binary.NativeEndian.AppendUint32(b, *at(e)) },
		decode: func(field []byte, e *element) { *at(e) = binary.NativeEndian.Uint32(field) },
		text:   func(e *element) string { return strconv.FormatUint(uint64(*at(e)), 10) },
	}
}

// frontendColumns are address, protocol and port; for node ports only the last two.
func (d dialect) frontendColumns() []column {
	return []column{d.addrColumn("daddr", frontendAddr), protocolColumn(), portColumn(func(e *element) *uint16 { return &e.frontend.Port })}
}

func frontendAddr(e *element) *netip.Addr { return &e.frontend.Addr }

// endpointColumns are address and port.
func (d dialect) endpointColumns() []column {
	return []column{d.addrColumn("daddr", func(e *element) *netip.Addr { return &e.addr }), portColumn(func(e *element) *uint16 { return &e.port })}
}

// withSlot adds a slot number to the columns of a frontend.
func withSlot(frontend []column) []column {
	return append(slices.Clip(frontend), numberColumn(func(e *element) *uint32 { return &e.slot }))
}

// poolColumns are the two constants that name a pool.
func poolColumns() []column {
	return []column{numberColumn(func(e *element) *uint32 { return &e.high }), numberColumn(func(e *element) *uint32 { return &e.low })}
}

func appendAddr(b []byte, addr netip.Addr) []byte {
	if addr.Is4() {
		a := addr.As4()
		return append(b, a[:]...)
	}
	a := addr.As16()
	return append(b, a[:]...)
}
