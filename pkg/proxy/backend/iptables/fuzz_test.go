package iptables

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// FuzzDiff checks diff between any two plans: after the patch the tables equal the second plan, and then nothing is
// left to do. The plans need not be successive.
func FuzzDiff(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(3), uint8(5), false)
	f.Add(uint64(7), uint64(7), uint8(0), uint8(30), true)
	f.Fuzz(func(t *testing.T, first, second uint64, steps, more uint8, legacy bool) {
		from, to := clusters.NewRandom(first, 12), clusters.NewRandom(second, 12)
		before, after := from.Step(), to.Step()
		for range int(steps) % 40 {
			before = from.Step()
		}
		for range int(more) % 40 {
			after = to.Step()
		}
		variant := ipt.NFT
		if legacy {
			variant = ipt.Legacy
		}
		b, doors := fakes(variant)
		sync(t, b, before)
		sync(t, b, after)
		holds(t, b, after)
		again := restarted(doors) // which has only the tables to start from
		if rules := sync(t, again, after); rules != 0 {
			t.Fatalf("wrote %d rules to tables that had them", rules)
		}
	})
}

// FuzzParse reads arbitrary text as the output of iptables-save. Everything that it parses must be ours, and must be
// parsed the same after it is formatted.
func FuzzParse(f *testing.F) {
	b, doors := fakes(ipt.NFT)
	plan := clusters.NewRandom(3, 12).Step()
	b.Sync(f.Context(), plan)
	for _, table := range tables() {
		text, err := doors[0].Save(f.Context(), table)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add("*nat\n:KUBE-SVC-X [0:0]\n[3:4] -A KUBE-SVC-X -m comment --comment \"a\\\" b\" -j KUBE-SEP-Y\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, text string) {
		parse := func(text string) *ruleset {
			out := &ruleset{}
			chains := out.chains.Edit()
			out.parse(tableNAT, text, chains)
			out.chains = chains.Map()
			return out
		}
		read := parse(text)
		var writes []write
		for name, chain := range read.chains.All() {
			if !name.ours() || name.table != tableNAT {
				t.Fatalf("%v is not ours", name)
			}
			writes = append(writes, write{name: name.name, lines: chain.lines})
		}
		slices.SortFunc(writes, func(a, b write) int { return strings.Compare(a.name, b.name) })
		var hooks []string
		for _, h := range read.hooks {
			hooks = append(hooks, "-A "+h.in.name+" "+h.text)
		}
		again := parse(restoreInput(tableNAT, writes, hooks, nil))
		if one, other := rows(read), rows(again); !slices.Equal(one, other) {
			t.Fatalf("%q\nparsed as\n%q, formatted as\n%q", text, one, other)
		}
	})
}

// rows returns the chains with their rules, sorted by name, and the hooks in the order in which they were read.
func rows(r *ruleset) []string {
	var all []string
	for name, chain := range r.chains.All() {
		row := ":" + name.name
		for _, l := range chain.lines {
			row += "\n" + l.text
		}
		all = append(all, row)
	}
	slices.Sort(all)
	for _, h := range r.hooks {
		all = append(all, h.in.name+" "+h.text)
	}
	return all
}
