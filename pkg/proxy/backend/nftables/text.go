package nftables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Render implements [backend.Renderer], in the format of `nft list` and `nft -f`.
func (m Mode) Render(p *plan.Plan, family cluster.Family) string {
	want := m.Options.render(p, nothing(newSchema(family, m.Options.Counters.Counting, false)))
	schema := want.schema
	t := &text{}
	t.line(0, "table %s %s {", schema.ip, TableName)
	for _, protocol := range protocols {
		t.block("counter "+localhostCounter(protocol), nil)
	}
	t.block("counter "+counterFull, nil)
	if schema.fast {
		var names []string
		for _, device := range want.devices {
			names = append(names, strconv.Quote(device.Name))
		}
		t.block("flowtable "+flowtable, []string{"hook ingress priority filter", "devices = { " + strings.Join(names, ", ") + " }", "counter"})
	}
	elements := map[*set][]string{}
	for s, e := range schema.elements(&want.content) {
		elements[s] = append(elements[s], "\t"+s.text(&e)+",")
	}
	for _, s := range schema.sets {
		lines := s.lines()
		if len(elements[s]) > 0 {
			lines = slices.Concat(lines, []string{"elements = {"}, elements[s], []string{"}"})
		}
		t.block(lines[0], lines[1:])
	}
	for port := range want.sticky.All() {
		for _, pool := range port.maps() {
			t.set(schema.clients(pool))
		}
	}
	for chain, list := range want.lists.All() {
		for _, s := range schema.meters(chain, list.fence) {
			t.set(s)
		}
	}
	writer := newWriter(schema, p.Node, m.Options)
	chains := slices.Clone(want.skeleton.chains)
	for target := range want.targets.All() {
		chains = append(chains, writer.chainOf(target, &want.content))
	}
	for _, c := range chains {
		rules := c.rules
		if c.kind != "" {
			rules = append([]string{fmt.Sprintf("type %s hook %s priority %s; policy accept;", c.kind, c.hook, c.priority)}, rules...)
		}
		t.block("chain "+c.name, rules)
	}
	t.line(0, "}")
	return t.String()
}

// text writes a table.
type text struct{ strings.Builder }

// set declares a set that packets write.
func (t *text) set(s *set) {
	lines := s.lines()
	t.block(lines[0], lines[1:])
}

func (t *text) line(depth int, format string, args ...any) {
	t.WriteString(strings.Repeat("\t", depth))
	fmt.Fprintf(t, format, args...)
	t.WriteByte('\n')
}

// block writes an object of the table.
func (t *text) block(title string, lines []string) {
	t.line(1, "%s {", title)
	for _, line := range lines {
		t.line(2, "%s", line)
	}
	t.line(1, "}")
}
