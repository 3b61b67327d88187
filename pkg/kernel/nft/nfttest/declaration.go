package nfttest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// cutQuoted cuts `comment "text"` from the end.
func cutQuoted(s string) (before, comment string) {
	before, quoted, ok := strings.Cut(s, " comment \"")
	if !ok {
		return s, ""
	}
	comment, err := strconv.Unquote("\"" + strings.TrimSpace(quoted))
	if err != nil {
		comment = quoted
	}
	return before, comment
}

// properties are the parts between the braces of a declaration.
type properties struct {
	list    []string
	comment string
}

func parseProperties(s string) (p properties) {
	s = strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}")
	if before, quoted, ok := strings.Cut(" "+s, " comment "); ok {
		if q, err := strconv.QuotedPrefix(quoted); err == nil {
			p.comment, _ = strconv.Unquote(q)
			s = before + strings.TrimPrefix(quoted, q)
		}
	}
	for part := range strings.SplitSeq(s, ";") {
		if part = strings.TrimSpace(part); part != "" {
			p.list = append(p.list, part)
		}
	}
	return p
}

// value returns what follows a property's name.
func (p properties) value(name string) (string, bool) {
	for _, part := range p.list {
		word, rest, _ := strings.Cut(part, " ")
		if word == name {
			return rest, true
		}
	}
	return "", false
}

// base parses the part of a base chain, `type nat hook prerouting priority -100`, and returns its attributes.
func (p properties) base() (b []byte, _ error) {
	spec, ok := p.value("type")
	if !ok {
		return nil, nil
	}
	words := strings.Fields(spec)
	if len(words) != 5 || !slices.Contains(hooks, words[2]) {
		return nil, fmt.Errorf("the fake does not understand the chain %q", spec)
	}
	priority, err := knftables.ParsePriority(knftables.IPv4Family, words[4])
	if err != nil {
		return nil, err
	}
	b = netlink.AppendString(b, unix.NFTA_CHAIN_TYPE, words[0])
	b, hook := netlink.BeginNest(b, unix.NFTA_CHAIN_HOOK)
	b = nf.Numbers{{unix.NFTA_HOOK_HOOKNUM, uint32(slices.Index(hooks, words[2]))}, {unix.NFTA_HOOK_PRIORITY, uint32(int32(priority))}}.AppendTo(b)
	netlink.EndNest(b, hook)
	if policy, ok := p.value("policy"); ok {
		b = netlink.AppendUint32(b, unix.NFTA_CHAIN_POLICY, uint32(verdicts[policy]))
	}
	return b, nil
}

var hooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

// declaration is the declaration of a set or map.
type declaration struct {
	// text is what is between its braces.
	text       string
	isMap      bool
	key, value []field
	verdicts   bool
	interval   bool
	// typedByPort means that values have a port and were declared with typeof.
	typedByPort bool
	flags, size uint32
	counter     bool
}

// set parses the declaration of a set or map.
func (p properties) set(isMap bool) (*declaration, error) {
	d := &declaration{isMap: isMap, text: strings.Join(p.list, "; ")}
	types, ok := p.value("type")
	if !ok {
		types, _ = p.value("typeof")
	}
	key, value, hasValue := strings.Cut(types, " : ")
	if hasValue != isMap {
		return nil, errors.New("a map needs a type for keys and one for values, a set one for keys")
	}
	var err error
	if d.key, err = parseTypes(key); err != nil {
		return nil, err
	}
	if d.verdicts = value == "verdict"; isMap && !d.verdicts {
		if d.value, err = parseTypes(value); err != nil {
			return nil, err
		}
	}
	_, typeof := p.value("typeof")
	d.typedByPort = typeof && slices.Contains(d.value, fieldPort)
	if isMap {
		d.flags |= unix.NFT_SET_MAP
	}
	flags, _ := p.value("flags")
	for flag := range strings.SplitSeq(flags, ",") {
		d.flags |= map[string]uint32{"interval": unix.NFT_SET_INTERVAL, "dynamic": unix.NFT_SET_EVAL, "timeout": unix.NFT_SET_TIMEOUT}[flag]
	}
	d.interval = d.flags&unix.NFT_SET_INTERVAL != 0
	_, d.counter = p.value("counter")
	if size, ok := p.value("size"); ok {
		n, err := strconv.ParseUint(size, 10, 32)
		if err != nil {
			return nil, err
		}
		d.size = uint32(n)
	}
	return d, nil
}

// appendTo appends the attributes of the declaration. It keeps the text where nft keeps the operands of `typeof`.
func (d *declaration) appendTo(b []byte) []byte {
	b = nf.Numbers{{unix.NFTA_SET_FLAGS, d.flags}, {unix.NFTA_SET_KEY_LEN, uint32(width(d.key))}}.AppendTo(b)
	switch {
	case d.verdicts:
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
	case d.isMap:
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_LEN, uint32(width(d.value)))
	}
	if d.size > 0 {
		var desc int
		b, desc = netlink.BeginNest(b, unix.NFTA_SET_DESC)
		b = netlink.AppendUint32(b, unix.NFTA_SET_DESC_SIZE, d.size)
		netlink.EndNest(b, desc)
	}
	if d.counter {
		var expr int
		b, expr = netlink.BeginNest(b, setExpr)
		b = netlink.AppendString(b, unix.NFTA_EXPR_NAME, "counter")
		netlink.EndNest(b, expr)
	}
	return netlink.AppendString(b, unix.NFTA_SET_USERDATA, d.text)
}

// declared reads a declaration from the kernel; nil if there is none.
func (p program) declared(name string) (d *declaration) {
	err := nf.New(p.socket).Get(nf.Query{Command: unix.NFT_MSG_GETSET, Family: p.fake.name.Family, Table: p.fake.name.Name, Name: name}, func(m netlink.Message) error {
		d = declarationOf(m)
		return nil
	})
	if err != nil {
		return nil
	}
	return d
}

// declarationOf reads a declaration from its message.
func declarationOf(m netlink.Message) *declaration {
	flags := m.Attr(unix.NFTA_SET_FLAGS)
	isMap := flags[3]&unix.NFT_SET_MAP != 0
	d, err := parseProperties(m.AttrString(unix.NFTA_SET_USERDATA)).set(isMap)
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
	for f := range field(1 << typeBits) {
		if name, _ := f.spec(); name == s && s != "" {
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
