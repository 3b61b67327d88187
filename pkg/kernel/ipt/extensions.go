package ipt

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	nftables "github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Attributes of extensions of x_tables in nf_tables (linux/netfilter/nf_tables_compat.h), the same for matches and
// targets.
const (
	nftaExtensionName     = 1
	nftaExtensionRevision = 2
	nftaExtensionInfo     = 3
)

// appendExtension appends a match or a target of x_tables, as the expression of that name.
func appendExtension(b []byte, expr, name string, revision uint32, info []byte) []byte {
	b, open := nftables.BeginExpr(b, expr)
	b = netlink.AppendString(b, nftaExtensionName, name)
	b = netlink.AppendUint32(b, nftaExtensionRevision, revision)
	b = netlink.AppendBytes(b, nftaExtensionInfo, info)
	open.End(b)
	return b
}

func native32(v uint32) []byte  { return binary.NativeEndian.AppendUint32(nil, v) }
func network16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// blob is a struct of the kernel's, of a multiple of 8 bytes (XT_ALIGN).
type blob []byte

// newBlob returns zeros, valid until the next call.
func (e *encoder) newBlob(size int) blob {
	e.blob = slices.Grow(e.blob[:0], (size+7)&^7)[:(size+7)&^7]
	clear(e.blob)
	return e.blob
}

func (b blob) put16(offset int, v uint16)       { binary.NativeEndian.PutUint16(b[offset:], v) }
func (b blob) put32(offset int, v uint32)       { binary.NativeEndian.PutUint32(b[offset:], v) }
func (b blob) addr(offset int, addr netip.Addr) { copy(b[offset:], addr.AsSlice()) }

// extension matches with an extension of x_tables.
func (e *encoder) extension(module string) {
	var info blob
	revision := uint32(0)
	switch module {
	case "comment": // struct xt_comment_info
		e.expect("--comment")
		text := e.word()
		e.ok = e.ok && len(text) <= maxComment && text != ""
		info = e.newBlob(maxComment + 1)
		copy(info[:maxComment], text)
	case "statistic":
		info = e.statistic()
	case "recent":
		info, revision = e.recent(), 1
	case "addrtype":
		info, revision = e.addressType(), 1
	case "conntrack":
		info, revision = e.conntrack(), 3
	default:
		e.ok = false
		return
	}
	e.matches = appendExtension(e.matches, "match", module, revision, info)
}

// statistic returns struct xt_statistic_info: mode, flags, and the probability in 31 bits.
func (e *encoder) statistic() blob {
	e.expect("--mode", "random", "--probability")
	p, err := strconv.ParseFloat(e.word(), 64)
	e.ok = e.ok && err == nil && p >= 0 && p <= 1
	info := e.newBlob(24)
	if e.ok {
		bits := uint32(math.Round(p * (1 << 31)))
		info.put32(4, bits)
		info.put32(12, bits) // the count of the other mode, which iptables fills in, too
	}
	return info
}

// recent returns struct xt_recent_mtinfo_v1.
func (e *encoder) recent() blob {
	const (
		checkSet, invert, name, side, mask, size = 8, 9, 10, 210, 212, 228
		// Of linux/netfilter/xt_recent.h: enum xt_recent options and sides.
		set, update, reap = 1 << 1, 1 << 2, 1 << 5
		bySource          = 0
		maxList           = 199
	)
	info := e.newBlob(size)
	switch e.word() {
	case "--set":
		info[checkSet] = set
	case "--update":
		e.expect("--seconds")
		info.put32(0, uint32(e.number(e.word(), 32)))
		e.expect("--reap")
		info[checkSet] = update | reap
	default:
		e.ok = false
	}
	e.expect("--name")
	list := e.word()
	e.ok = e.ok && list != "" && len(list) <= maxList
	copy(info[name:name+maxList], list)
	e.expect("--mask")
	info.addr(mask, e.parseAddr(e.word()))
	e.expect("--rsource")
	info[side] = bySource
	return info
}

// addressType returns struct xt_addrtype_info_v1: the types of source and destination, and flags.
func (e *encoder) addressType() blob {
	const flags, invertSource = 4, 1 << 0 // XT_ADDRTYPE_INVERT_SOURCE
	info := e.newBlob(8)
	not := e.skip("!")
	switch option := e.word(); {
	case option == "--src-type":
		info.put16(0, 1<<unix.RTN_LOCAL)
		if not {
			info.put32(flags, invertSource)
		}
	case option == "--dst-type" && !not:
		info.put16(2, 1<<unix.RTN_LOCAL)
	default:
		e.ok = false
	}
	e.expect("LOCAL")
	return info
}

// conntrack returns struct xt_conntrack_mtinfo3.
func (e *encoder) conntrack() blob {
	const (
		originalDestination, matchFlags, invertFlags, states, size = 32, 146, 148, 150, 164
		// Of linux/netfilter/xt_conntrack.h.
		byState, byOriginalDestination = 1 << 0, 1 << 3
	)
	info := e.newBlob(size)
	not := e.skip("!")
	switch e.word() {
	case "--ctstate":
		bits, ok := connectionStates(e.word())
		e.ok = e.ok && ok
		info.put16(matchFlags, byState)
		info.put16(states, bits)
		if not {
			info.put16(invertFlags, byState)
		}
	case "--ctorigdst":
		prefix, err := netip.ParsePrefix(e.word())
		e.ok = e.ok && !not && err == nil && prefix.Addr().Is4() == (e.family == IPv4)
		if e.ok {
			info.put16(matchFlags, byOriginalDestination)
			info.addr(originalDestination, prefix.Masked().Addr())
			for i := range prefix.Bits() {
				info[originalDestination+16+i/8] |= 0x80 >> (i % 8)
			}
		}
	default:
		e.ok = false
	}
	return info
}

// connectionStates returns the bits of a list of states.
func connectionStates(list string) (bits uint16, ok bool) {
	for name := range strings.SplitSeq(list, ",") {
		switch name {
		case "INVALID":
			bits |= 1 << 0
		case "ESTABLISHED":
			bits |= 1 << 1
		case "RELATED":
			bits |= 1 << 2
		case "NEW":
			bits |= 1 << 3
		case "DNAT":
			bits |= 1 << 7
		default:
			return 0, false
		}
	}
	return bits, true
}

// sctp returns struct xt_sctp_info that matches destination ports.
func (e *encoder) sctp(from, to uint16) blob {
	const chunks, flags, byDestination = 268, 284, 1 << 1 // XT_SCTP_DEST_PORTS
	info := e.newBlob(292)
	for i := range 4 {
		info[chunks+3*i] = 0xff // no type of chunk
	}
	info.put16(0, from)
	info.put16(2, to)
	info.put32(flags, byDestination)
	return info
}

// targetInfo takes the options of a target of x_tables and returns its struct. The last result is false for any other name.
func (e *encoder) targetInfo(name string) (info blob, revision uint32, is bool) {
	switch name {
	case "MARK": // struct xt_mark_tginfo2
		e.expect("--set-xmark")
		value, mask := e.masked()
		info = e.newBlob(8)
		info.put32(0, value)
		info.put32(4, mask)
		return info, 2, true
	case "DNAT":
		e.expect("--to-destination")
		return e.natRange(e.word()), 2, true
	case "MASQUERADE":
		return e.masquerade(), 0, true
	case "REJECT":
		e.expect("--reject-with")
		info = e.newBlob(4)
		switch kind := e.word(); {
		case kind == "icmp-port-unreachable" && e.family == IPv4:
			info.put32(0, 3) // IPT_ICMP_PORT_UNREACHABLE
		case kind == "icmp6-port-unreachable" && e.family == IPv6:
			info.put32(0, 4) // IP6T_ICMP6_PORT_UNREACH
		default:
			e.ok = false
		}
		return info, 0, true
	}
	return nil, 0, false
}

// Of linux/netfilter/nf_nat.h.
const (
	mapAddress    = 1 << 0 // NF_NAT_RANGE_MAP_IPS
	mapPort       = 1 << 1 // NF_NAT_RANGE_PROTO_SPECIFIED
	randomlyFully = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
)

// natRange returns struct nf_nat_range2 of one address and port.
func (e *encoder) natRange(word string) blob {
	to, err := netip.ParseAddrPort(word)
	if e.ok = e.ok && err == nil && to.Addr().Is4() == (e.family == IPv4) && to.Addr().Zone() == "" && to.Port() != 0 && e.protocol != 0; !e.ok {
		return nil
	}
	info := e.newBlob(42)
	info.put32(0, mapAddress|mapPort)
	info.addr(4, to.Addr())
	info.addr(20, to.Addr())
	binary.BigEndian.PutUint16(info[36:], to.Port())
	binary.BigEndian.PutUint16(info[38:], to.Port())
	return info
}

// masquerade returns struct nf_nat_ipv4_multi_range_compat of one range, or struct nf_nat_range.
func (e *encoder) masquerade() blob {
	flags := uint32(0)
	if e.skip("--random-fully") {
		flags = randomlyFully
	}
	if e.family == IPv6 {
		info := e.newBlob(40)
		info.put32(0, flags)
		return info
	}
	info := e.newBlob(20)
	info.put32(0, 1)
	info.put32(4, flags)
	return info
}
