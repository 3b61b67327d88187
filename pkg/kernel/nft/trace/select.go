//go:build linux

package trace

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// has reports whether packets of a family can be selected.
func (f *Filter) has(family nf.Family) bool {
	four := family == nf.IPv4
	if len(f.To) == 0 {
		return f.From.Addr().Is4() == four
	}
	return slices.ContainsFunc(f.To, func(d Destination) bool { return d.Addr.Is4() == four })
}

const (
	// first is a priority before connection tracking and all chains of firewalls; only defragmentation comes before.
	first = -350
	// last is a priority after all chains of firewalls and address translation.
	last = 350
)

// write writes the table of a family: two chains select packets, before anything else sees them.
func (f *Filter) write(b *nf.Batch, family nf.Family) {
	b.AddOwnedTable()
	b.AddChain(nf.Chain{Name: Selected, Comment: "begins the trace of a packet"})
	b.AddRule(Selected, appendTrace(appendLimit(nil, f.PerSecond)), 0)
	hooked := func(name string, hook uint32, priority int32) {
		b.AddChain(nf.Chain{Name: name, Type: "filter", Hook: hook, Priority: priority})
	}
	hooked("select-prerouting", unix.NF_INET_PRE_ROUTING, first)
	hooked("select-output", unix.NF_INET_LOCAL_OUT, first)
	for _, rule := range f.rules(family) {
		b.AddRule("select-prerouting", rule, 0)
		b.AddRule("select-output", rule, 0)
	}
	hooked(AfterPrerouting, unix.NF_INET_PRE_ROUTING, last)
	hooked(AfterOutput, unix.NF_INET_LOCAL_OUT, last)
	hooked(AfterInput, unix.NF_INET_LOCAL_IN, last)
	hooked(AfterPostrouting, unix.NF_INET_POST_ROUTING, last)
}

// rules returns the expressions of rules that select packets of a family, one or two for each destination.
func (f *Filter) rules(family nf.Family) (rules [][]byte) {
	to := f.To
	if len(to) == 0 {
		to = []Destination{{}}
	}
	for _, d := range to {
		if d.Addr.IsValid() && d.Addr.Is4() != (family == nf.IPv4) {
			continue
		}
		var addresses []byte
		if f.From.IsValid() && f.From.Bits() > 0 {
			addresses = nf.AppendPrefix(addresses, nf.Source, f.From, false)
		}
		switch {
		case d.Addr.IsValid() && d.Addr.IsUnspecified():
			addresses = nf.AppendIsLocal(addresses, nf.Destination)
		case d.Addr.IsValid():
			addresses = nf.AppendPrefix(addresses, nf.Destination, netip.PrefixFrom(d.Addr, d.Addr.BitLen()), false)
		}
		for _, part := range f.parts(d) {
			rules = append(rules, nf.AppendImmediate(slices.Concat(addresses, part), nf.Goto, Selected))
		}
	}
	return rules
}

// parts select packets to an address by protocol, port and flags: each part is of one rule.
func (f *Filter) parts(d Destination) [][]byte {
	switch {
	case f.Opening && d.Port == 0:
		return [][]byte{appendOpens(appendProtocol(nil, unix.IPPROTO_TCP, false)), appendProtocol(nil, unix.IPPROTO_TCP, true)}
	case f.Opening && d.Protocol == unix.IPPROTO_TCP:
		return [][]byte{appendOpens(appendPort(nil, d))}
	case d.Port != 0:
		return [][]byte{appendPort(nil, d)}
	default:
		return [][]byte{nil}
	}
}

// appendProtocol matches a protocol, IPPROTO_*, or all others: `meta l4proto tcp`.
func appendProtocol(b []byte, protocol byte, not bool) []byte {
	b = nf.AppendMeta(b, unix.NFT_REG_1, unix.NFT_META_L4PROTO)
	return nf.AppendCompare(b, not, []byte{protocol})
}

// appendPort matches the protocol and the port of a destination: `tcp dport 80`.
func appendPort(b []byte, d Destination) []byte {
	b = nf.AppendPayload(appendProtocol(b, d.Protocol, false), unix.NFT_REG_1, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
	return nf.AppendCompare(b, false, binary.BigEndian.AppendUint16(nil, d.Port))
}

// appendOpens matches segments of TCP that open a connection: `tcp flags syn / syn,ack`.
func appendOpens(b []byte) []byte {
	const syn, ack = 0x02, 0x10
	b = nf.AppendPayload(b, unix.NFT_REG_1, unix.NFT_PAYLOAD_TRANSPORT_HEADER, tcpFlags, 1)
	return nf.AppendCompare(nf.AppendBitwise(b, []byte{syn | ack}, []byte{0}), false, []byte{syn})
}

// appendLimit matches at most this number of packets in a second, and as many at once after a pause: `limit rate 20/second burst
// 20 packets`. All others do not match.
func appendLimit(b []byte, perSecond uint32) []byte {
	b, open := nf.BeginExpr(b, "limit")
	b = netlink.AppendBytes(b, unix.NFTA_LIMIT_RATE, binary.BigEndian.AppendUint64(nil, uint64(perSecond)))
	b = netlink.AppendBytes(b, unix.NFTA_LIMIT_UNIT, binary.BigEndian.AppendUint64(nil, 1)) // second
	b = nf.Numbers{{unix.NFTA_LIMIT_BURST, perSecond}, {unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS}, {unix.NFTA_LIMIT_FLAGS, 0}}.AppendTo(b)
	open.End(b)
	return b
}

// appendTrace makes the kernel report every rule that the packet matches from now on: `meta nftrace set 1`.
func appendTrace(b []byte) []byte {
	b, open := nf.BeginExpr(b, "immediate")
	b = netlink.AppendUint32(b, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_1)
	b = nf.AppendData(b, unix.NFTA_IMMEDIATE_DATA, []byte{1})
	open.End(b)
	return nf.AppendExpr(b, "meta", nf.Numbers{{unix.NFTA_META_KEY, unix.NFT_META_NFTRACE}, {unix.NFTA_META_SREG, unix.NFT_REG_1}})
}
