package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/nftables"
)

// SourceIn matches packets from a prefix of the table's family: `ip saddr 10.0.0.0/8`; with Not all others.
type SourceIn struct {
	Prefix netip.Prefix
	Not    bool
}

func (s SourceIn) text(family knftables.Family) string {
	return fmt.Sprintf("%s saddr%s %s", family, operator(s.Not), s.Prefix.Masked())
}

// appendTo compares whole bytes if the prefix ends at one, as nft does, and masks the address otherwise.
func (s SourceIn) appendTo(b []byte, family knftables.Family) []byte {
	value, bits := s.Prefix.Masked().Addr().AsSlice(), s.Prefix.Bits()
	if bits > 0 && bits%8 == 0 {
		value = value[:bits/8]
		return nftables.AppendCompare(nftables.AppendPayload(b, unix.NFT_REG_1, payloadNetwork, sourceOffset(family), len(value)), s.Not, value)
	}
	b = nftables.AppendPayload(b, unix.NFT_REG_1, payloadNetwork, sourceOffset(family), len(value))
	mask := make([]byte, len(value))
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	b = nftables.AppendBitwise(b, mask, make([]byte, len(value)))
	return nftables.AppendCompare(b, s.Not, value)
}

// InputInterface matches packets that arrived on the interface of that name, or if the name ends in *, on any whose name
// begins with the rest: `iifname "cbr0"`; with Not all others.
type InputInterface struct {
	Name string
	Not  bool
}

func (i InputInterface) text(knftables.Family) string {
	return fmt.Sprintf("iifname%s %q", operator(i.Not), i.Name)
}

func (i InputInterface) appendTo(b []byte, _ knftables.Family) []byte {
	value, wild := strings.CutSuffix(i.Name, "*")
	b = nftables.AppendExpr(b, "meta", nftables.Numbers{{unix.NFTA_META_DREG, unix.NFT_REG_1}, {unix.NFTA_META_KEY, unix.NFT_META_IIFNAME}})
	if !wild { // with the padding, so that no longer name is equal
		value += strings.Repeat("\x00", max(0, unix.IFNAMSIZ-len(value)))
	}
	return nftables.AppendCompare(b, i.Not, []byte(value))
}

// SourceIsLocal matches packets whose source is an address of this machine: `fib saddr type local`.
type SourceIsLocal struct{}

func (SourceIsLocal) text(knftables.Family) string { return "fib saddr type local" }

func (SourceIsLocal) appendTo(b []byte, _ knftables.Family) []byte {
	return appendIsLocal(b, fibSource)
}

// Of linux/netfilter/nf_tables.h: enum nft_fib_flags.
const (
	fibSource      = 1
	fibDestination = 2
)

// appendIsLocal matches packets with an address of this machine, which flag selects.
func appendIsLocal(b []byte, flag uint32) []byte {
	// Of linux/netfilter/nf_tables.h: enum nft_fib_attributes and nft_fib_result.
	const dreg, result, flags, resultAddrType = 1, 2, 3, 3
	b = nftables.AppendExpr(b, "fib", nftables.Numbers{{dreg, unix.NFT_REG_1}, {result, resultAddrType}, {flags, flag}})
	return nftables.AppendCompare(b, false, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))
}

func operator(not bool) string {
	if not {
		return " !="
	}
	return ""
}
