package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Render writes the table that a plan makes in one family, the way `nft list` shows it and `nft -f` loads it.
func Render(p *plan.Plan, family cluster.Family, opts Options) string {
	t := &text{writer: newWriter(family, p.Node, opts)}
	want := render(family, p, opts, nil)
	// Everything is new to an empty table, so the patch is the ruleset.
	patch := diff(&ruleset{family: family}, want)
	elements := map[string][]string{}
	for o := range patch.ops() {
		elements[o.set] = append(elements[o.set], t.element(o))
	}
	t.line(0, "table %s %s {", t.family, TableName)
	for _, protocol := range protocols {
		t.line(1, "counter %s {", localhostCounter(protocol))
		t.line(1, "}")
	}
	for _, s := range want.skeleton.sets {
		t.set(s, elements[s.name])
	}
	for timeout := range want.timeouts.All() {
		t.set(t.clients(timeout), nil)
	}
	chains := slices.Clone(want.skeleton.chains)
	for target := range want.targets.All() {
		if list, ok := want.lists.Get(target); ok {
			chains = append(chains, t.fromChain(target, list))
		} else {
			chains = append(chains, t.chain(target))
		}
	}
	for _, c := range chains {
		t.rules(c)
	}
	t.line(0, "}")
	return t.String()
}

// text writes a table out.
type text struct {
	*writer
	strings.Builder
}

func (t *text) line(depth int, format string, args ...any) {
	t.WriteString(strings.Repeat("\t", depth))
	fmt.Fprintf(t, format, args...)
	t.WriteByte('\n')
}

func (t *text) set(s set, elements []string) {
	kind, types := "set", "typeof "+s.typeOf
	if s.isMap {
		kind = "map"
	}
	if s.plainType != "" {
		types = "type " + s.plainType
	}
	t.line(1, "%s %s {", kind, s.name)
	t.line(2, "%s", types)
	switch {
	case s.clients:
		t.line(2, "size %d", maxClients)
		t.line(2, "flags dynamic,timeout")
	case s.counts:
		t.line(2, "counter")
	}
	if len(elements) > 0 {
		t.line(2, "elements = {")
		for _, e := range elements {
			t.line(3, "%s,", e)
		}
		t.line(2, "}")
	}
	t.line(1, "}")
}

func (t *text) rules(c chain) {
	t.line(1, "chain %s {", c.name)
	if c.kind != "" {
		t.line(2, "type %s hook %s priority %s; policy accept;", c.kind, c.hook, c.priority)
	}
	for _, rule := range c.rules {
		t.line(2, "%s", rule)
	}
	t.line(1, "}")
}

// element writes one element as nft does.
func (t *text) element(o op) string {
	var key []string
	addr := func(a netip.Addr) { key = append(key, a.String()) }
	switch o.set {
	case setClusterIPs, setNodeAddrs:
		addr(o.addr)
	case setHairpins:
		addr(o.addr)
		addr(o.addr)
	case setSticky:
		high, low := o.pool.words()
		return fmt.Sprintf("%s . %d . %d . %d", o.to.Addr(), o.to.Port(), high, low)
	default:
		if !o.frontend.IsNodePort() {
			addr(o.frontend.Addr)
		}
		key = append(key, strings.ToLower(o.frontend.Protocol.String()), fmt.Sprint(o.frontend.Port))
	}
	switch {
	case o.to.IsValid():
		return fmt.Sprintf("%s . %d : %s . %d", strings.Join(key, " . "), o.slot, o.to.Addr(), o.to.Port())
	case o.goes.kind != none:
		return fmt.Sprintf("%s comment %q : goto %s", strings.Join(key, " . "), o.comment, o.goes.name())
	case o.comment != "":
		return fmt.Sprintf("%s comment %q", strings.Join(key, " . "), o.comment)
	default:
		return strings.Join(key, " . ")
	}
}
