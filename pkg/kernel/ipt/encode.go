package ipt

import (
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// encoder encodes rules as iptables-nft does, byte by byte: addresses, interfaces, protocols, ports of TCP and UDP and marks
// as expressions of nf_tables, everything else as matches and targets of x_tables (see extensions).
type encoder struct {
	family Family
	// newer selects the encoding of iptables-nft 1.8.10 and later, rather than that of 1.8.9. They mean the same to the kernel:
	// see header.
	newer bool
	// blob is what newBlob returns. It is reused.
	blob blob

	// What the rule matches so far. protocol is 0 for all.
	interfaces, source, destination, matches []byte
	protocol                                 byte
	out                                      []byte
	ok                                       bool
}

// Expressions returns the rule as the kernel holds it in the nft variant; ok is false for a rule that was listed, or that iptables would refuse.
func (r Rule) Expressions(family Family) (expressions []byte, ok bool) {
	expressions, _, ok = (&encoder{family: family}).rule(nil, r)
	return expressions, ok
}

// rule appends the expressions of a rule. It returns false for a rule that was listed, or that iptables would refuse.
// protocol is what the kernel checks extensions against.
func (e *encoder) rule(b []byte, r Rule) (_ []byte, protocol byte, ok bool) {
	e.interfaces, e.source, e.destination, e.matches = e.interfaces[:0], e.source[:0], e.destination[:0], e.matches[:0]
	e.protocol, e.ok = 0, r.listed == ""
	for _, m := range r.Matches {
		if m != nil {
			m.encode(e, false)
		}
	}
	e.out = append(e.header(b), e.matches...)
	e.out = appendCounter(e.out)
	if r.Target != nil {
		r.Target.encode(e)
	}
	return e.out, e.protocol, e.ok
}

// header appends the matches of the interface, the protocol and the addresses.
func (e *encoder) header(b []byte) []byte {
	if e.newer {
		b = append(append(b, e.source...), e.destination...)
		return e.appendProtocol(append(b, e.interfaces...))
	}
	b = e.appendProtocol(append(b, e.interfaces...))
	return append(append(b, e.source...), e.destination...)
}

// appendProtocol appends the match of the protocol, if there is one. The newer encoding reads it from the header of IPv4;
// in IPv6 extension headers can precede it there.
func (e *encoder) appendProtocol(b []byte) []byte {
	if e.protocol == 0 {
		return b
	}
	if e.newer && e.family == IPv4 {
		b = nf.AppendPayload(b, unix.NFT_REG_1, unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1)
	} else {
		b = nf.AppendMeta(b, unix.NFT_REG_1, unix.NFT_META_L4PROTO)
	}
	return nf.AppendCompare(b, false, []byte{e.protocol})
}

// address matches some bits of an address. iptables leaves out a match of none.
func (e *encoder) address(b []byte, not bool, end nf.End, addr, mask netip.Addr) []byte {
	bits := 8 * e.family.Number().AddressLen()
	e.ok = e.ok && len(b) == 0 && addr.BitLen() == bits && mask.BitLen() == bits && !mask.IsUnspecified()
	if !e.ok {
		return b
	}
	return nf.AppendMasked(b, end, addr, mask, not)
}

// passes matches the input or output interface.
func (e *encoder) passes(direction uint32, not bool, name string) {
	stem, wild := strings.CutSuffix(name, "+")
	e.ok = e.ok && stem != "" && len(name) < unix.IFNAMSIZ && !strings.ContainsAny(name, " /!")
	value := []byte(stem)
	if !wild {
		value = append(value, 0)
	}
	e.interfaces = nf.AppendCompare(nf.AppendMeta(e.interfaces, unix.NFT_REG_1, direction), not, value)
}

// goes continues in a user chain.
func (e *encoder) goes(verdict nf.Verdict, chain string) {
	e.ok = e.ok && isUserChain(chain)
	e.out = nf.AppendImmediate(e.out, verdict, chain)
}

// appendCounter appends a counter that starts at 0.
func appendCounter(b []byte) []byte {
	b, open := nf.BeginExpr(b, "counter")
	var zero [8]byte
	b = netlink.AppendBytes(b, unix.NFTA_COUNTER_BYTES, zero[:])
	b = netlink.AppendBytes(b, unix.NFTA_COUNTER_PACKETS, zero[:])
	open.End(b)
	return b
}
