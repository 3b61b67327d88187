package ipt

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// appendExtension appends a match or a target of x_tables, as the expression of that name.
func appendExtension(b []byte, expr, name string, revision uint32, info []byte) []byte {
	b, open := nf.BeginExpr(b, expr)
	b = netlink.AppendString(b, nf.AttrExtensionName, name)
	b = netlink.AppendUint32(b, nf.AttrExtensionRevision, revision)
	b = netlink.AppendBytes(b, nf.AttrExtensionInfo, info)
	open.End(b)
	return b
}

func (e *encoder) matchWith(name string, revision uint32, info blob) {
	e.matches = appendExtension(e.matches, "match", name, revision, info)
}

func (e *encoder) targetWith(name string, revision uint32, info blob) {
	e.out = appendExtension(e.out, "target", name, revision, info)
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

// MaxComment is XT_MAX_COMMENT_LEN without the final NUL: the most bytes of a [Comment].
const MaxComment = 255

// Comment matches every packet. It must not have a quotation mark or a backslash.
type Comment string

func (c Comment) words() (extension, option, value string) {
	return "comment", "--comment", `"` + string(c) + `"`
}

func (c Comment) encode(e *encoder, not bool) { // struct xt_comment_info
	e.ok = e.ok && !not && c != "" && len(c) <= MaxComment
	info := e.newBlob(MaxComment + 1)
	copy(info[:MaxComment], c)
	e.matchWith("comment", 0, info)
}

// Chance matches with a probability of Chance/2³¹.
type Chance uint32

func (c Chance) words() (extension, option, value string) {
	return "statistic", "--mode", "random --probability " + strconv.FormatFloat(float64(c)/(1<<31), 'f', 11, 64)
}

func (c Chance) encode(e *encoder, not bool) { // struct xt_statistic_info: mode, flags, and the probability
	e.ok = e.ok && !not
	info := e.newBlob(24)
	info.put32(4, uint32(c))
	info.put32(12, uint32(c)) // the count of the other mode, which iptables fills in, too
	e.matchWith("statistic", 0, info)
}

// Every matches the first of so many packets that it sees, and each one that follows so many later. The kernel counts anew when the rule is written,
// in the legacy variant with each change of the table.
type Every uint32

func (n Every) words() (extension, option, value string) {
	return "statistic", "--mode", fmt.Sprintf("nth --every %d --packet 0", uint32(n))
}

func (n Every) encode(e *encoder, not bool) { // struct xt_statistic_info: mode, flags, every, packet and count
	e.ok = e.ok && !not && n > 0
	info := e.newBlob(24)
	binary.NativeEndian.PutUint16(info, 1) // XT_STATISTIC_MODE_NTH
	info.put32(4, uint32(n)-1)
	info.put32(12, uint32(n)-1) // so that the next packet is the first
	e.matchWith("statistic", 0, info)
}

// Recent matches clients in a list that have connected within a time, in seconds, and updates the list. If the time is 0 it matches
// every client, and adds it to the list. Whole is a mask of all bits of an address.
type Recent struct {
	List   string
	Within time.Duration
	Whole  netip.Addr
}

func (r Recent) words() (extension, option, value string) {
	value = "--name " + r.List + " --mask " + r.Whole.String() + " --rsource"
	if r.Within == 0 {
		return "recent", "--set", value
	}
	return "recent", "--update", fmt.Sprintf("--seconds %d --reap %s", r.Within/time.Second, value)
}

func (r Recent) encode(e *encoder, not bool) { // struct xt_recent_mtinfo_v1
	const (
		checkSet, name, side, mask, size = 8, 10, 210, 212, 228
		// Of linux/netfilter/xt_recent.h: enum xt_recent options and sides.
		set, update, reap = 1 << 1, 1 << 2, 1 << 5
		bySource          = 0
		maxList           = 199
	)
	info := e.newBlob(size)
	info[checkSet] = set
	if r.Within > 0 {
		info.put32(0, uint32(r.Within/time.Second))
		info[checkSet] = update | reap
	}
	e.ok = e.ok && !not && len(r.List) <= maxList
	copy(info[name:name+maxList], r.List)
	info.addr(mask, r.Whole)
	info[side] = bySource
	e.matchWith("recent", 1, info)
}

// RateAbove matches the packets that exceed a number in a second, after as many at once: of all that meet the rules with this list, or of each
// source address if Clients, the most addresses in the list, is not 0. The kernel drops packets of others when it is full. A list keeps
// its numbers, so others need another name.
type RateAbove struct {
	List      string
	PerSecond uint32
	Clients   uint32
}

// rateScale is XT_HASHLIMIT_SCALE_v2: rates are kept as the time between two packets.
const rateScale = 1_000_000

func (r RateAbove) words() (extension, option, value string) {
	value = fmt.Sprintf("%d/sec --hashlimit-burst %d ", rateScale/(rateScale/max(1, r.PerSecond)), r.PerSecond)
	if r.Clients == 0 {
		return "hashlimit", "--hashlimit-above", value + "--hashlimit-name " + r.List
	}
	return "hashlimit", "--hashlimit-above", fmt.Sprintf("%s--hashlimit-mode srcip --hashlimit-name %s --hashlimit-htable-max %d", value, r.List, r.Clients)
}

func (r RateAbove) encode(e *encoder, not bool) { // struct xt_hashlimit_mtinfo3: the name, and struct hashlimit_cfg3
	const (
		average, burst, mode, most, interval, expire, prefix, size = 256, 264, 272, 280, 284, 288, 296, 312
		// Of linux/netfilter/xt_hashlimit.h.
		bySource, above = 1 << 2, 1 << 4
		maxList         = 254
		second          = 1000
	)
	e.ok = e.ok && !not && r.PerSecond > 0 && r.PerSecond <= rateScale && len(r.List) <= maxList
	info := e.newBlob(size)
	copy(info[:maxList], r.List)
	binary.NativeEndian.PutUint64(info[average:], uint64(rateScale/max(1, r.PerSecond)))
	binary.NativeEndian.PutUint64(info[burst:], uint64(r.PerSecond))
	info.put32(mode, above)
	if r.Clients > 0 {
		info.put32(mode, above|bySource)
	}
	info.put32(most, r.Clients)
	info.put32(interval, second)
	info.put32(expire, second)
	whole := byte(32)
	if e.family == IPv6 {
		whole = 128
	}
	info[prefix], info[prefix+1] = whole, whole
	e.matchWith("hashlimit", 3, info)
}

// OpenAbove matches connections while more than so many are open that have met the rule, from source addresses with the same first bits.
type OpenAbove struct {
	Open uint32
	Bits int
}

func (o OpenAbove) words() (extension, option, value string) {
	return "connlimit", "--connlimit-above", fmt.Sprintf("%d --connlimit-mask %d --connlimit-saddr", o.Open, o.Bits)
}

func (o OpenAbove) encode(e *encoder, not bool) { // struct xt_connlimit_info: a mask of addresses, the limit, and flags
	e.ok = e.ok && !not && o.Bits%8 == 0
	info := e.newBlob(32)
	for i := range o.Bits / 8 {
		info[i] = 0xff
	}
	info.put32(16, o.Open)
	e.matchWith("connlimit", 1, info)
}

// Local matches packets whose source, or destination, is an address of this machine.
type Local string

// The two ends.
const (
	LocalSource      Local = "--src-type"
	LocalDestination Local = "--dst-type"
)

func (l Local) words() (extension, option, value string) { return "addrtype", string(l), "LOCAL" }

func (l Local) encode(e *encoder, not bool) { // struct xt_addrtype_info_v1: the types of source and destination, and flags
	at, invert := 0, uint32(1<<0) // XT_ADDRTYPE_INVERT_SOURCE
	if l == LocalDestination {
		at, invert = 2, 1<<1 // XT_ADDRTYPE_INVERT_DEST
	}
	info := e.newBlob(8)
	info.put16(at, 1<<unix.RTN_LOCAL)
	if not {
		info.put32(4, invert)
	}
	e.matchWith("addrtype", 1, info)
}

// States matches connections by the states that conntrack knows them in, any of some.
type States uint16

// The states, as bits of struct xt_conntrack_mtinfo3.
const (
	Invalid     States = 1 << 0
	Established States = 1 << 1
	Related     States = 1 << 2
	New         States = 1 << 3
	Translated  States = 1 << 7 // by DNAT
)

func (s States) words() (extension, option, value string) {
	var names []string
	for _, known := range []struct { // in the order of iptables
		bit  States
		name string
	}{{Invalid, "INVALID"}, {New, "NEW"}, {Related, "RELATED"}, {Established, "ESTABLISHED"}, {Translated, "DNAT"}} {
		if s&known.bit != 0 {
			names = append(names, known.name)
		}
	}
	return "conntrack", "--ctstate", strings.Join(names, ",")
}

// Offsets in struct xt_conntrack_mtinfo3, and bits of its flags.
const (
	conntrackOriginal, conntrackMatch, conntrackInvert, conntrackStates, conntrackSize = 32, 146, 148, 150, 164
	byState, byOriginal                                                                = 1 << 0, 1 << 3
)

func (s States) encode(e *encoder, not bool) {
	info := e.newBlob(conntrackSize)
	info.put16(conntrackMatch, byState)
	info.put16(conntrackStates, uint16(s))
	if not {
		info.put16(conntrackInvert, byState)
	}
	e.matchWith("conntrack", 3, info)
}

// Original matches connections by their destination before it was translated.
type Original netip.Prefix

func (o Original) words() (extension, option, value string) {
	return "conntrack", "--ctorigdst", netip.Prefix(o).String()
}

func (o Original) encode(e *encoder, not bool) {
	info := e.newBlob(conntrackSize)
	info.put16(conntrackMatch, byOriginal)
	info.addr(conntrackOriginal, netip.Prefix(o).Addr())
	info.addr(conntrackOriginal+16, nf.MaskOf(netip.Prefix(o)))
	if not {
		info.put16(conntrackInvert, byOriginal)
	}
	e.matchWith("conntrack", 3, info)
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

// SetMark sets the bits of a mask in the packet's mark to those of a value.
type SetMark struct{ Value, Mask uint32 }

func (m SetMark) words() (jump, name, options string) {
	return "-j", "MARK", "--set-xmark " + hex(m.Value, m.Mask)
}

func (m SetMark) encode(e *encoder) { // struct xt_mark_tginfo2
	info := e.newBlob(8)
	info.put32(0, m.Value)
	info.put32(4, m.Mask)
	e.targetWith("MARK", 2, info)
}

// Of linux/netfilter/nf_nat.h.
const (
	mapAddress    = 1 << 0 // NF_NAT_RANGE_MAP_IPS
	mapPort       = 1 << 1 // NF_NAT_RANGE_PROTO_SPECIFIED
	randomlyFully = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
)

// DNAT sends a connection of a protocol that the rule matches to an address and port.
type DNAT netip.AddrPort

func (d DNAT) words() (jump, name, options string) {
	return "-j", "DNAT", "--to-destination " + netip.AddrPort(d).String()
}

func (d DNAT) encode(e *encoder) { // struct nf_nat_range2 of one address and port
	to := netip.AddrPort(d)
	e.ok = e.ok && e.protocol != 0 && to.Port() != 0 && to.Addr().Is4() == (e.family == IPv4)
	info := e.newBlob(42)
	info.put32(0, mapAddress|mapPort)
	info.addr(4, to.Addr())
	info.addr(20, to.Addr())
	binary.BigEndian.PutUint16(info[36:], to.Port())
	binary.BigEndian.PutUint16(info[38:], to.Port())
	e.targetWith("DNAT", 2, info)
}

// Masquerade replaces the source by an address of the machine, and its port by a random one.
type Masquerade struct{}

func (Masquerade) words() (jump, name, options string) { return "-j", "MASQUERADE", "--random-fully" }

func (Masquerade) encode(e *encoder) {
	if e.family == IPv6 { // struct nf_nat_range
		info := e.newBlob(40)
		info.put32(0, randomlyFully)
		e.targetWith("MASQUERADE", 0, info)
		return
	}
	info := e.newBlob(20) // struct nf_nat_ipv4_multi_range_compat of one range
	info.put32(0, 1)
	info.put32(4, randomlyFully)
	e.targetWith("MASQUERADE", 0, info)
}

// Reject refuses a connection.
type Reject string

// The ways to refuse one: port unreachable, an error of ICMP in its family; or a reset, which also ends one, in a rule that matches only TCP.
const (
	Unreachable4 Reject = "icmp-port-unreachable"
	Unreachable6 Reject = "icmp6-port-unreachable"
	Reset        Reject = "tcp-reset"
)

func (r Reject) words() (jump, name, options string) {
	return "-j", "REJECT", "--reject-with " + string(r)
}

func (r Reject) encode(e *encoder) { // of enum ipt_reject_with, ip6t_reject_with
	codes := map[Reject]uint32{Unreachable4: 3, Reset: 7}
	if e.family == IPv6 {
		codes = map[Reject]uint32{Unreachable6: 4, Reset: 6}
	}
	code, known := codes[r]
	e.ok = e.ok && known && (r != Reset || e.protocol == uint8(TCP))
	info := e.newBlob(4)
	info.put32(0, code)
	e.targetWith("REJECT", 0, info)
}
