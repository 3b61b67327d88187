package nfttest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// declaration is the declaration of a set or map.
type declaration struct {
	// The fields of [knftables.Set] and [knftables.Map].
	IsMap        bool
	Type, TypeOf string
	Flags        []knftables.SetFlag
	Size         *uint64

	// types are those of Type or TypeOf.
	types      string
	key, value []field
	// verdicts means that values are verdicts, typedByPort that they have a port and were declared with typeof, counter that elements count.
	verdicts, typedByPort, counter bool
}

// parse reads the types.
func (d *declaration) parse() (err error) {
	types, counter, _ := strings.Cut(cmp.Or(d.Type, d.TypeOf), ";")
	d.types, d.counter = strings.TrimSpace(types), strings.TrimSpace(counter) == "counter"
	key, value, hasValue := strings.Cut(d.types, " : ")
	if hasValue != d.IsMap {
		return errors.New("a map needs a type for keys and one for values, a set one for keys")
	}
	if d.key, err = parseTypes(key); err != nil {
		return err
	}
	if d.verdicts = value == "verdict"; d.IsMap && !d.verdicts {
		d.value, err = parseTypes(value)
	}
	d.typedByPort = d.Type == "" && slices.Contains(d.value, fieldPort)
	return err
}

// has reports whether a flag was declared.
func (d *declaration) has(flag knftables.SetFlag) bool { return slices.Contains(d.Flags, flag) }

// text returns what nft lists of it.
func (d *declaration) text() string {
	parts := []string{"typeof " + d.types}
	if d.Type != "" {
		parts[0] = "type " + d.types
	}
	if d.counter {
		parts = append(parts, "counter")
	}
	var flags []string
	for _, flag := range d.Flags {
		flags = append(flags, string(flag))
	}
	if flags != nil {
		parts = append(parts, "flags "+strings.Join(flags, ","))
	}
	if size := d.Size; size != nil {
		parts = append(parts, fmt.Sprintf("size %d", *size))
	}
	return strings.Join(parts, "; ")
}

// appendTo appends the attributes of the declaration. It keeps the declaration itself where nft keeps the operands of `typeof`.
func (d *declaration) appendTo(b []byte) []byte {
	var flags uint32
	for flag, bit := range map[knftables.SetFlag]uint32{
		knftables.IntervalFlag: unix.NFT_SET_INTERVAL, knftables.DynamicFlag: unix.NFT_SET_EVAL, knftables.TimeoutFlag: unix.NFT_SET_TIMEOUT,
	} {
		if d.has(flag) {
			flags |= bit
		}
	}
	if d.IsMap {
		flags |= unix.NFT_SET_MAP
	}
	b = nf.Numbers{{unix.NFTA_SET_FLAGS, flags}, {unix.NFTA_SET_KEY_LEN, uint32(width(d.key))}}.AppendTo(b)
	switch {
	case d.verdicts:
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
	case d.IsMap:
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_LEN, uint32(width(d.value)))
	}
	if size := d.Size; size != nil {
		var desc int
		b, desc = netlink.BeginNest(b, unix.NFTA_SET_DESC)
		b = netlink.AppendUint32(b, unix.NFTA_SET_DESC_SIZE, uint32(*size))
		netlink.EndNest(b, desc)
	}
	if d.counter {
		var expr int
		b, expr = netlink.BeginNest(b, nf.AttrSetExpr)
		b = netlink.AppendString(b, unix.NFTA_EXPR_NAME, "counter")
		netlink.EndNest(b, expr)
	}
	kept, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return netlink.AppendBytes(b, unix.NFTA_SET_USERDATA, kept)
}

// declarationOf reads a declaration from its message.
func declarationOf(m netlink.Message) *declaration {
	d := &declaration{}
	err := json.Unmarshal(m.Attr(unix.NFTA_SET_USERDATA), d)
	if err == nil {
		err = d.parse()
	}
	if err != nil {
		panic(err)
	}
	return d
}

// parseTypes parses `ipv4_addr . inet_proto` or `ip daddr . meta l4proto`.
func parseTypes(s string) ([]field, error) {
	var out []field
	for part := range strings.SplitSeq(s, " . ") {
		f, ok := fieldOf(strings.TrimSpace(part))
		if !ok {
			return nil, fmt.Errorf("the fake does not know the type of %q", part)
		}
		out = append(out, f)
	}
	return out, nil
}

// fieldOf returns the type of an expression, or the type with that name.
func fieldOf(s string) (field, bool) {
	for f, t := range types {
		if t.name == s {
			return f, true
		}
	}
	switch s {
	case "ip saddr", "ip daddr", "ct original ip saddr", "ct original ip daddr":
		return fieldIPv4, true
	case "ip6 saddr", "ip6 daddr", "ct original ip6 saddr", "ct original ip6 daddr":
		return fieldIPv6, true
	case "meta l4proto", "ip protocol", "ip6 nexthdr":
		return fieldProto, true
	case "th sport", "th dport", "tcp dport", "udp dport", "sctp dport", "tcp sport", "udp sport", "sctp sport", "ct original proto-dst":
		return fieldPort, true
	case "meta mark", "ct mark":
		return fieldMark, true
	case "iifname", "oifname", "meta iifname", "meta oifname":
		return fieldIfName, true
	}
	return fieldInteger, strings.HasPrefix(s, "numgen ")
}
