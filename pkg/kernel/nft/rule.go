package nft

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Rule is a rule made of statements, which can be written both ways: [Rule.Text] is for knftables, and [AddRule] writes
// the same over netlink. The kernel holds the same rule either way.
//
// There are only the statements that batches need; all others can be written as text.
type Rule []Statement

// Text returns the rule as nft writes it.
func (r Rule) Text(family nf.Family) string {
	parts := make([]string, 0, len(r))
	for _, s := range r {
		parts = append(parts, s.text(family))
	}
	return strings.Join(parts, " ")
}

// AddRule appends a rule to a chain. Commit fails with ENOENT if the chain, or a chain or set that the rule uses, does not exist.
func AddRule(b *nf.Batch, chain string, r Rule) {
	var expressions []byte
	for _, s := range r {
		expressions = s.appendTo(expressions, b.Family())
	}
	b.AddRule(chain, expressions, 0)
}

// Statement is one part of a rule: a condition or an action.
type Statement interface {
	text(family nf.Family) string
	// appendTo appends the statement's expressions, each as an NFTA_LIST_ELEM.
	appendTo(b []byte, family nf.Family) []byte
}

// Operand is a property of a packet, or a number drawn for it.
type Operand uint64

// The operands. Addresses are those of the table's family.
const (
	SourceAddress      Operand = (iota + 1) << 32 // ip saddr
	DestinationAddress                            // ip daddr
	Protocol                                      // meta l4proto
	DestinationPort                               // th dport
	randomNumber                                  // numgen random mod n
	nextNumber                                    // numgen inc mod n
	sourceHash                                    // jhash ip saddr mod n
	flowHash                                      // jhash ip saddr . th sport mod n
	sourcePort                                    // th sport, which is hashed
	constant                                      // numgen random mod 1 offset n
)

// RandomNumber is a random number from 0 to n-1 for each packet, evenly distributed (`numgen random mod n`).
func RandomNumber(n uint32) Operand { return randomNumber | Operand(n) }

// NextNumber counts the packets that meet the rule, modulo n (`numgen inc mod n`).
func NextNumber(n uint32) Operand { return nextNumber | Operand(n) }

// SourceHash is a number from 0 to n-1 that depends on the packet's source address (`jhash ip saddr mod n seed ...`), FlowHash one that depends
// on the source port, too. On machines of the same byte order they are the same.
func SourceHash(n uint32) Operand { return sourceHash | Operand(n) }

// FlowHash is described with [SourceHash].
func FlowHash(n uint32) Operand { return flowHash | Operand(n) }

// hashSeed is an arbitrary number, which must never change: nodes with another one would make other choices.
const hashSeed = 0x6b756265

// Constant is n for every packet. nft 1.0.6 has no constants in keys, so it is written as a random choice of one number:
// `numgen random mod 1 offset n`. Its field in the key is an integer in the byte order of the host.
func Constant(n uint32) Operand { return constant | Operand(n) }

// Concat is a concatenation of operands, as a key of a set or map: `ip daddr . meta l4proto . th dport`.
type Concat []Operand

func (c Concat) text(family nf.Family) string {
	ip := family.String()
	parts := make([]string, 0, len(c))
	for _, o := range c {
		switch kind, n := o&^0xffffffff, uint32(o); kind {
		case SourceAddress:
			parts = append(parts, ip+" saddr")
		case DestinationAddress:
			parts = append(parts, ip+" daddr")
		case Protocol:
			parts = append(parts, "meta l4proto")
		case DestinationPort:
			parts = append(parts, "th dport")
		case randomNumber:
			parts = append(parts, fmt.Sprintf("numgen random mod %d", n))
		case nextNumber:
			parts = append(parts, fmt.Sprintf("numgen inc mod %d", n))
		case sourceHash:
			parts = append(parts, fmt.Sprintf("jhash %s saddr mod %d seed 0x%x", ip, n, hashSeed))
		case flowHash:
			parts = append(parts, fmt.Sprintf("jhash %s saddr . th sport mod %d seed 0x%x", ip, n, hashSeed))
		case constant:
			part := "numgen random mod 1"
			if n != 0 {
				part += fmt.Sprintf(" offset %d", n)
			}
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " . ")
}

// appendTo appends expressions that load the operands into registers, from the first on.
func (c Concat) appendTo(b []byte, family nf.Family) []byte { return c.appendAt(b, family, 0) }

// appendAt loads the operands into registers from an offset on.
func (c Concat) appendAt(b []byte, family nf.Family, at int) []byte {
	free := at + c.width(family) + 16 // as nft does for dnat, what a hash is of comes behind 16 bytes more
	for _, o := range c {
		switch kind, n := o&^0xffffffff, uint32(o); kind {
		case SourceAddress:
			b = nf.AppendAddress(b, register(at), family, nf.Source)
		case DestinationAddress:
			b = nf.AppendAddress(b, register(at), family, nf.Destination)
		case Protocol:
			b = nf.AppendMeta(b, register(at), unix.NFT_META_L4PROTO)
		case DestinationPort:
			b = nf.AppendPayload(b, register(at), unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
		case randomNumber:
			b = appendNumber(b, at, unix.NFT_NG_RANDOM, n, 0)
		case nextNumber:
			b = appendNumber(b, at, unix.NFT_NG_INCREMENTAL, n, 0)
		case sourceHash:
			b = appendHash(Concat{SourceAddress}.appendAt(b, family, free), at, free, n, SourceAddress.width(family))
		case flowHash:
			ends := Concat{SourceAddress, sourcePort}
			b = appendHash(ends.appendAt(b, family, free), at, free, n, ends.width(family))
		case sourcePort:
			b = nf.AppendPayload(b, register(at), unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2)
		case constant:
			b = appendNumber(b, at, unix.NFT_NG_RANDOM, 1, n)
		}
		at += o.width(family)
	}
	return b
}

// width returns how many bytes of registers, or of a key, the operands take.
func (c Concat) width(family nf.Family) int {
	n := 0
	for _, o := range c {
		n += o.width(family)
	}
	return n
}

func (o Operand) width(family nf.Family) int {
	if kind := o &^ 0xffffffff; kind == SourceAddress || kind == DestinationAddress {
		return family.AddressLen()
	}
	return 4
}

// appendNumber loads a number from offset to offset+n-1, random or the next one, into the register at an offset.
func appendNumber(b []byte, at int, kind, n, offset uint32) []byte {
	return nf.AppendExpr(b, "numgen", nf.Numbers{
		{unix.NFTA_NG_DREG, register(at)}, {unix.NFTA_NG_MODULUS, n}, {unix.NFTA_NG_TYPE, kind}, {unix.NFTA_NG_OFFSET, offset},
	})
}

// appendHash loads a hash from 0 to n-1 into the register at an offset. It is that of a number of bytes from another offset on.
func appendHash(b []byte, at, from int, n uint32, length int) []byte {
	return nf.AppendExpr(b, "hash", nf.Numbers{
		{unix.NFTA_HASH_SREG, register(from)}, {unix.NFTA_HASH_DREG, register(at)}, {unix.NFTA_HASH_LEN, uint32(length)},
		{unix.NFTA_HASH_MODULUS, n}, {unix.NFTA_HASH_SEED, hashSeed}, {unix.NFTA_HASH_OFFSET, 0}, {unix.NFTA_HASH_TYPE, unix.NFT_HASH_JENKINS},
	})
}

// register returns the number of the register at an offset: one of the 4 of 16 bytes, or of the 16 of 4 bytes.
func register(offset int) uint32 {
	if offset%16 == 0 {
		return uint32(unix.NFT_REG_1 + offset/16)
	}
	return uint32(unix.NFT_REG32_00 + offset/4)
}

// Lookup matches packets whose key is in a set: `ip saddr @name`.
type Lookup struct {
	Key Concat
	Set string
}

func (l Lookup) text(family nf.Family) string { return l.Key.text(family) + " @" + l.Set }

func (l Lookup) appendTo(b []byte, family nf.Family) []byte {
	return nf.AppendLookup(l.Key.appendTo(b, family), l.Set, 0)
}

// DNAT sends packets whose key is in a data map to the address and port that the key maps to, and lets others pass:
// `dnat ip to ip daddr . meta l4proto . th dport map @name`.
type DNAT struct {
	Key Concat
	Map string
}

func (d DNAT) text(family nf.Family) string {
	return fmt.Sprintf("dnat %s to %s map @%s", family, d.Key.text(family), d.Map)
}

func (d DNAT) appendTo(b []byte, family nf.Family) []byte {
	b = nf.AppendLookup(d.Key.appendTo(b, family), d.Map, unix.NFT_REG_1)
	address, port := register(0), register(family.AddressLen())
	return nf.AppendExpr(b, "nat", nf.Numbers{
		{unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT}, {unix.NFTA_NAT_FAMILY, uint32(family)},
		{unix.NFTA_NAT_REG_ADDR_MIN, address}, {unix.NFTA_NAT_REG_ADDR_MAX, address},
		{unix.NFTA_NAT_REG_PROTO_MIN, port}, {unix.NFTA_NAT_REG_PROTO_MAX, port},
	})
}

// Goto continues in a chain and does not return.
type Goto string

func (g Goto) text(nf.Family) string { return "goto " + string(g) }

func (g Goto) appendTo(b []byte, _ nf.Family) []byte {
	return nf.AppendImmediate(b, nf.Goto, string(g))
}

// Jump continues in a chain and returns: `jump name`.
type Jump string

func (j Jump) text(nf.Family) string { return "jump " + string(j) }

func (j Jump) appendTo(b []byte, _ nf.Family) []byte {
	return nf.AppendImmediate(b, nf.Jump, string(j))
}

// Return continues after the jump that led to the chain: `return`.
type Return struct{}

func (Return) text(nf.Family) string { return "return" }

func (Return) appendTo(b []byte, _ nf.Family) []byte {
	return nf.AppendImmediate(b, nf.Return, "")
}

// Count counts the packet with a named counter of the table: `counter name "name"`.
type Count string

func (c Count) text(nf.Family) string { return fmt.Sprintf("counter name %q", string(c)) }

func (c Count) appendTo(b []byte, _ nf.Family) []byte {
	b, open := nf.BeginExpr(b, "objref")
	b = nf.Numbers{{unix.NFTA_OBJREF_IMM_TYPE, unix.NFT_OBJECT_COUNTER}}.AppendTo(b)
	b = netlink.AppendString(b, unix.NFTA_OBJREF_IMM_NAME, string(c))
	open.End(b)
	return b
}

// SetMark sets bits of the packet's mark and keeps the others: `meta mark set meta mark | 0x00004000`.
type SetMark uint32

func (m SetMark) text(nf.Family) string {
	return fmt.Sprintf("meta mark set meta mark | 0x%08x", uint32(m))
}

func (m SetMark) appendTo(b []byte, _ nf.Family) []byte {
	b = nf.AppendMeta(b, unix.NFT_REG_1, unix.NFT_META_MARK)
	b = nf.AppendBitwise(b, binary.NativeEndian.AppendUint32(nil, ^uint32(m)), binary.NativeEndian.AppendUint32(nil, uint32(m)))
	return nf.AppendExpr(b, "meta", nf.Numbers{{unix.NFTA_META_KEY, unix.NFT_META_MARK}, {unix.NFTA_META_SREG, unix.NFT_REG_1}})
}
