package nf

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Numbers are attributes that each hold a number of 32 bits: pairs of a type and a value.
type Numbers [][2]uint32

// AppendTo appends the attributes.
func (v Numbers) AppendTo(b []byte) []byte {
	for _, a := range v {
		b = netlink.AppendUint32(b, uint16(a[0]), a[1])
	}
	return b
}

// Expr is where an expression that has begun is in a buffer.
type Expr struct{ elem, data int }

// BeginExpr begins an expression; its attributes are appended until End.
func BeginExpr(b []byte, name string) (_ []byte, e Expr) {
	b, e.elem = netlink.BeginNest(b, unix.NFTA_LIST_ELEM)
	b = netlink.AppendString(b, unix.NFTA_EXPR_NAME, name)
	b, e.data = netlink.BeginNest(b, unix.NFTA_EXPR_DATA)
	return b, e
}

// End ends the expression.
func (e Expr) End(b []byte) {
	netlink.EndNest(b, e.data)
	netlink.EndNest(b, e.elem)
}

// AppendExpr appends an expression that has only numbers.
func AppendExpr(b []byte, name string, v Numbers) []byte {
	b, open := BeginExpr(b, name)
	b = v.AppendTo(b)
	open.End(b)
	return b
}

// AppendData appends an attribute with a value as registers hold it.
func AppendData(b []byte, typ uint16, v []byte) []byte {
	b, nest := netlink.BeginNest(b, typ)
	b = netlink.AppendBytes(b, unix.NFTA_DATA_VALUE, v)
	netlink.EndNest(b, nest)
	return b
}

// AppendPayload loads part of a header, NFT_PAYLOAD_*_HEADER, into a register.
func AppendPayload(b []byte, register, header uint32, offset, length int) []byte {
	return AppendExpr(b, "payload", Numbers{
		{unix.NFTA_PAYLOAD_DREG, register}, {unix.NFTA_PAYLOAD_BASE, header},
		{unix.NFTA_PAYLOAD_OFFSET, uint32(offset)}, {unix.NFTA_PAYLOAD_LEN, uint32(length)},
	})
}

// AppendAddress loads an address of the packet, of the family, into a register.
func AppendAddress(b []byte, register uint32, f Family, e End) []byte {
	return AppendPayload(b, register, unix.NFT_PAYLOAD_NETWORK_HEADER, f.addressOffset(e), f.AddressLen())
}

// AppendPrefix matches packets with an address in a prefix, or with not, all others.
func AppendPrefix(b []byte, e End, p netip.Prefix, not bool) []byte {
	return AppendMasked(b, e, p.Addr(), MaskOf(p), not)
}

// AppendMasked matches packets with some bits of an address, those of a mask, or with not, all others. It compares whole bytes if the
// mask is of the first ones, as nft and iptables-nft do, and masks the address otherwise.
func AppendMasked(b []byte, e End, addr, mask netip.Addr, not bool) []byte {
	f, value, bits := IPv4, addr.AsSlice(), mask.AsSlice()
	if addr.Is6() {
		f = IPv6
	}
	for i := range value {
		value[i] &= bits[i]
	}
	none := make([]byte, len(bits))
	whole := 0 // bytes of the mask before the first that is not 0xff
	for whole < len(bits) && bits[whole] == 0xff {
		whole++
	}
	if whole > 0 && bytes.Equal(bits[whole:], none[whole:]) {
		value = value[:whole]
		return AppendCompare(AppendPayload(b, unix.NFT_REG_1, unix.NFT_PAYLOAD_NETWORK_HEADER, f.addressOffset(e), whole), not, value)
	}
	b = AppendAddress(b, unix.NFT_REG_1, f, e)
	return AppendCompare(AppendBitwise(b, bits, none), not, value)
}

// MaskOf returns the mask of a prefix.
func MaskOf(p netip.Prefix) netip.Addr {
	mask := make([]byte, p.Addr().BitLen()/8)
	for i := range mask {
		mask[i] = byte(0xff << max(0, min(8, 8*(i+1)-p.Bits())))
	}
	addr, _ := netip.AddrFromSlice(mask)
	return addr
}

// AppendIsLocal matches packets with an address of this machine.
func AppendIsLocal(b []byte, e End) []byte {
	// Of linux/netfilter/nf_tables.h: enum nft_fib_attributes, nft_fib_result and nft_fib_flags, where the source is 1, the destination 2.
	const dreg, result, flags, resultAddrType = 1, 2, 3, 3
	b = AppendExpr(b, "fib", Numbers{{dreg, unix.NFT_REG_1}, {result, resultAddrType}, {flags, 1 << e}})
	return AppendCompare(b, false, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))
}

// AppendMeta loads a property of the packet, NFT_META_*, into a register.
func AppendMeta(b []byte, register, key uint32) []byte {
	return AppendExpr(b, "meta", Numbers{{unix.NFTA_META_KEY, key}, {unix.NFTA_META_DREG, register}})
}

// AppendBitwise replaces the first register by its bits in a mask, with the bits in flip inverted.
func AppendBitwise(b, mask, flip []byte) []byte {
	b, open := BeginExpr(b, "bitwise")
	b = Numbers{{unix.NFTA_BITWISE_SREG, unix.NFT_REG_1}, {unix.NFTA_BITWISE_DREG, unix.NFT_REG_1}, {unix.NFTA_BITWISE_LEN, uint32(len(mask))}}.AppendTo(b)
	b = AppendData(b, unix.NFTA_BITWISE_MASK, mask)
	b = AppendData(b, unix.NFTA_BITWISE_XOR, flip)
	open.End(b)
	return b
}

// AppendCompare compares the first register for equality, or inequality.
func AppendCompare(b []byte, not bool, value []byte) []byte {
	if not {
		return AppendCompareWith(b, unix.NFT_CMP_NEQ, value)
	}
	return AppendCompareWith(b, unix.NFT_CMP_EQ, value)
}

// AppendCompareWith compares the first register with an operator, NFT_CMP_*.
func AppendCompareWith(b []byte, operator uint32, value []byte) []byte {
	b, open := BeginExpr(b, "cmp")
	b = Numbers{{unix.NFTA_CMP_SREG, unix.NFT_REG_1}, {unix.NFTA_CMP_OP, operator}}.AppendTo(b)
	b = AppendData(b, unix.NFTA_CMP_DATA, value)
	open.End(b)
	return b
}

// Verdict is the code of a verdict, as the kernel's attribute holds it: a negative number of 32 bits, or NF_*.
type Verdict uint32

// Verdicts of linux/netfilter.h and linux/netfilter/nf_tables.h.
const (
	Drop   Verdict = 0
	Accept Verdict = 1
	Jump   Verdict = 1<<32 + unix.NFT_JUMP
	Goto   Verdict = 1<<32 + unix.NFT_GOTO
	Return Verdict = 1<<32 + unix.NFT_RETURN
)

// AppendVerdict appends a verdict, and its chain if it has one.
func AppendVerdict(b []byte, v Verdict, chain string) []byte {
	b, verdict := netlink.BeginNest(b, unix.NFTA_DATA_VERDICT)
	b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, uint32(v))
	if chain != "" {
		b = netlink.AppendString(b, unix.NFTA_VERDICT_CHAIN, chain)
	}
	netlink.EndNest(b, verdict)
	return b
}

// AppendLookup looks up the key in the first register in a set, or with into NFT_REG_*, loads what a map has for it into that register.
func AppendLookup(b []byte, set string, into uint32) []byte {
	b, open := BeginExpr(b, "lookup")
	b = netlink.AppendUint32(b, unix.NFTA_LOOKUP_SREG, unix.NFT_REG_1)
	if into != 0 {
		b = netlink.AppendUint32(b, unix.NFTA_LOOKUP_DREG, into)
	}
	b = netlink.AppendString(b, unix.NFTA_LOOKUP_SET, set)
	open.End(b)
	return b
}

// AppendImmediate appends an expression with a verdict.
func AppendImmediate(b []byte, v Verdict, chain string) []byte {
	b, open := BeginExpr(b, "immediate")
	b = netlink.AppendUint32(b, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
	b, data := netlink.BeginNest(b, unix.NFTA_IMMEDIATE_DATA)
	b = AppendVerdict(b, v, chain)
	netlink.EndNest(b, data)
	open.End(b)
	return b
}

// ReadExpr returns the name and the attributes of an expression, an NFTA_LIST_ELEM in a list of them.
func ReadExpr(b []byte) (name []byte, attrs netlink.Attrs) {
	return textOf(netlink.Attr(b, unix.NFTA_EXPR_NAME)), netlink.ReadAttrs(netlink.Attr(b, unix.NFTA_EXPR_DATA))
}
