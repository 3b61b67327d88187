package nfttest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf/nftest"
)

// expressionsOf translates a rule: its text, and expressions for what the kernel has to know of it, which is what it refers to.
func expressionsOf(text string) []byte {
	b := nftest.AppendText(nil, text)
	var open nf.Expr
	words := strings.Fields(strings.ReplaceAll(text, "ct status dnat", "")) // a condition
	for i, w := range words {
		before, next := "", ""
		if i > 0 {
			before = words[i-1]
		}
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch name, isSet := strings.CutPrefix(w, "@"); {
		case isSet && i > 1 && words[i-2] == "flow":
			b, open = nf.BeginExpr(b, "flow_offload")
			b = netlink.AppendString(b, 1, name)
			open.End(b)
		case isSet && name != "" && !strings.Contains(name, ","):
			b = appendUse(b, before, name, slices.Contains(words, "timeout"))
		case (w == "goto" || w == "jump") && next != "":
			b = nf.AppendImmediate(b, verdicts[w], next)
		case w == "counter" && next == "name" && i+2 < len(words):
			b, open = nf.BeginExpr(b, "objref")
			b = netlink.AppendString(b, unix.NFTA_OBJREF_IMM_NAME, strings.Trim(words[i+2], `"`))
			open.End(b)
		case w == "dnat":
			b = nf.AppendExpr(b, "nat", nf.Numbers{{unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT}})
		case w == "snat":
			b = nf.AppendExpr(b, "nat", nf.Numbers{{unix.NFTA_NAT_TYPE, unix.NFT_NAT_SNAT}})
		case w == "redirect":
			b = nf.AppendExpr(b, "redir", nil)
		case w == "masquerade":
			b = nf.AppendExpr(b, "masq", nil)
		}
	}
	return b
}

// appendUse appends the expression that uses a set after a word. timed reports that packets set a timeout.
func appendUse(b []byte, word, name string, timed bool) []byte {
	if word == "update" || word == "add" {
		b, open := nf.BeginExpr(b, "dynset")
		b = netlink.AppendString(b, unix.NFTA_DYNSET_SET_NAME, name)
		if timed {
			b = netlink.AppendBytes(b, unix.NFTA_DYNSET_TIMEOUT, make([]byte, 8))
		}
		open.End(b)
		return b
	}
	b, open := nf.BeginExpr(b, "lookup")
	if word == "vmap" {
		b = netlink.AppendUint32(b, unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
	}
	b = netlink.AppendString(b, unix.NFTA_LOOKUP_SET, name)
	open.End(b)
	return b
}

// reader translates a rule's expressions to text, those that [nf.Batch] writes.
type reader struct {
	family nf.Family
	words  []string
	// loaded are the operands in registers that no condition or action has used yet, from the offset in ats on.
	loaded []string
	ats    []int
	// width is that of the last operand, mask and bits what a bitwise expression did to it, table is a map that was looked up.
	width      int
	mask, bits []byte
	table      string
}

// textOf returns a rule's text.
func textOf(family nf.Family, expressions netlink.Attrs) string {
	r := reader{family: family}
	for expressions.Next() {
		if text, ok := nftest.TextOf(expressions.Data); ok {
			return text
		}
		name, attrs := nf.ReadExpr(expressions.Data)
		r.expression(string(name), attrs)
	}
	return strings.Join(r.words, " ")
}

// load notes an operand in a register.
func (r *reader) load(register uint32, operand string, width int) {
	r.loaded, r.ats, r.width = append(r.loaded, operand), append(r.ats, offsetOf(register)), width
}

// offsetOf returns the offset of a register.
func offsetOf(register uint32) int {
	if register >= unix.NFT_REG32_00 {
		return int(register-unix.NFT_REG32_00) * 4
	}
	return int(register-unix.NFT_REG_1) * 16
}

// say adds words, which use what was loaded.
func (r *reader) say(format string, args ...any) {
	r.words = append(r.words, fmt.Sprintf(format, args...))
	r.loaded, r.ats, r.mask, r.bits = nil, nil, nil, nil
}

// expression reads an expression.
func (r *reader) expression(name string, attrs netlink.Attrs) {
	number := attrs.FindUint32
	value := func(typ uint16) []byte { return netlink.Attr(attrs.Find(typ), unix.NFTA_DATA_VALUE) }
	key := strings.Join(r.loaded, " . ")
	switch name {
	case "payload":
		r.load(number(unix.NFTA_PAYLOAD_DREG), r.header(number(unix.NFTA_PAYLOAD_BASE), number(unix.NFTA_PAYLOAD_OFFSET)), int(number(unix.NFTA_PAYLOAD_LEN)))
	case "numgen":
		kind := map[uint32]string{unix.NFT_NG_INCREMENTAL: "inc", unix.NFT_NG_RANDOM: "random"}[number(unix.NFTA_NG_TYPE)]
		text := fmt.Sprintf("numgen %s mod %d", kind, number(unix.NFTA_NG_MODULUS))
		if offset := number(unix.NFTA_NG_OFFSET); offset > 0 {
			text += fmt.Sprintf(" offset %d", offset)
		}
		r.load(number(unix.NFTA_NG_DREG), text, 4)
	case "hash":
		of := slices.Index(r.ats, offsetOf(number(unix.NFTA_HASH_SREG)))
		text := fmt.Sprintf("jhash %s mod %d seed 0x%x", strings.Join(r.loaded[of:], " . "), number(unix.NFTA_HASH_MODULUS), number(unix.NFTA_HASH_SEED))
		r.loaded, r.ats = r.loaded[:of], r.ats[:of]
		r.load(number(unix.NFTA_HASH_DREG), text, 4)
	case "fib":
		r.load(unix.NFT_REG_1, "fib saddr type", 4)
	case "meta":
		of := map[uint32]string{unix.NFT_META_L4PROTO: "meta l4proto", unix.NFT_META_IIFNAME: "iifname", unix.NFT_META_MARK: "meta mark"}[number(unix.NFTA_META_KEY)]
		if attrs.Find(unix.NFTA_META_SREG) != nil {
			r.say("%s set %s | 0x%08x", of, key, binary.NativeEndian.Uint32(r.bits))
		} else {
			r.load(number(unix.NFTA_META_DREG), of, 4)
		}
	case "bitwise":
		r.mask, r.bits = value(unix.NFTA_BITWISE_MASK), value(unix.NFTA_BITWISE_XOR)
	case "cmp":
		operator := map[uint32]string{unix.NFT_CMP_NEQ: "!= "}[number(unix.NFTA_CMP_OP)]
		r.say("%s %s%s", key, operator, r.operand(key, value(unix.NFTA_CMP_DATA)))
	case "lookup":
		r.table = netlink.String(attrs.Find(unix.NFTA_LOOKUP_SET))
		if attrs.Find(unix.NFTA_LOOKUP_DREG) == nil {
			r.say("%s @%s", key, r.table)
		}
	case "nat":
		r.say("dnat %s to %s map @%s", r.family, key, r.table)
	case "immediate":
		r.say("%s", verdictText(netlink.Attr(attrs.Find(unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)))
	case "objref":
		r.say("counter name %q", netlink.String(attrs.Find(unix.NFTA_OBJREF_IMM_NAME)))
	case "dynset":
		data := slices.Index(r.ats, int(number(unix.NFTA_DYNSET_SREG_DATA)-unix.NFT_REG_1)*16)
		timeout := time.Duration(binary.BigEndian.Uint64(attrs.Find(unix.NFTA_DYNSET_TIMEOUT))) * time.Millisecond
		r.say("update @%s { %s timeout %s : %s }", netlink.String(attrs.Find(unix.NFTA_DYNSET_SET_NAME)),
			strings.Join(r.loaded[:data], " . "), short(timeout), strings.Join(r.loaded[data:], " . "))
	default:
		r.say("unknown expression %s", name)
	}
}

// header returns the operand at an offset of a packet's header.
func (r *reader) header(header, offset uint32) string {
	if header == unix.NFT_PAYLOAD_TRANSPORT_HEADER {
		return map[uint32]string{0: "th sport", 2: "th dport"}[offset]
	}
	if offset == 12 || offset == 8 {
		return r.family.String() + " saddr"
	}
	return r.family.String() + " daddr"
}

// operand formats what the last operand is compared with.
func (r *reader) operand(of string, v []byte) string {
	switch {
	case strings.HasPrefix(of, "fib"):
		return "local"
	case of == "iifname" && len(v) < unix.IFNAMSIZ:
		return fmt.Sprintf("%q", string(v)+"*")
	case of == "iifname":
		return fmt.Sprintf("%q", unix.ByteSliceToString(v))
	case of == "meta l4proto":
		return fieldProto.format(v)
	}
	bits := 8 * len(v)
	if r.mask != nil {
		bits = 0
		for _, b := range r.mask {
			for ; b != 0; b <<= 1 {
				bits++
			}
		}
	}
	address := make([]byte, r.family.AddressLen())
	copy(address, v)
	a, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(a, bits).String()
}

// short formats a duration as nft does.
func short(d time.Duration) string {
	text := d.String()
	if days := d / (24 * time.Hour); days > 0 {
		text = fmt.Sprintf("%dd%s", days, d%(24*time.Hour))
	}
	for _, zero := range []string{"0s", "0m", "0h"} {
		if before, ok := strings.CutSuffix(text, zero); ok && (before == "" || before[len(before)-1] > '9') {
			text = before
		}
	}
	return text
}
