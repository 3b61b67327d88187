package cases

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// The skeleton is the ruleset of a node without Services, with default options. It has its own golden file. A case file
// contains only the difference to it, so that a case shows the effect of its objects, and a change of the skeleton changes
// one file.

// rulesets are the rulesets of both backends for one plan, in IPv4.
type rulesets struct{ nftables, iptables []block }

func renderBoth(p *plan.Plan) rulesets {
	return rulesets{
		nftables: nftablesBlocks(nftMode.Render(p, cluster.IPv4)),
		iptables: iptablesBlocks(iptMode.Render(p, cluster.IPv4)),
	}
}

// renderSkeleton renders the skeleton and compares it with its golden file.
func renderSkeleton(t *testing.T) rulesets {
	t.Helper()
	path := filepath.Join("testdata", "skeleton.txtar")
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	options, _, err := parseOptions("")
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Compute((&Case{}).newBuilder(nil).Snapshot(), options, nil)
	rules := renderBoth(p)
	golden(t, path, archive, "nftables", added(rules.nftables, nil))
	golden(t, path, archive, "iptables", added(rules.iptables, nil))
	return rules
}

// block is the unit of comparison with the skeleton: an nftables object or an iptables chain.
type block struct {
	// title is unique within its ruleset.
	title string
	lines []string
	// elements are the elements of an nftables set or map; declaration is the rest of it.
	elements, declaration []string
}

// added formats the blocks that differ from those of the skeleton. A set or map that differs only in its elements is
// written as title and elements, every other block completely, and a missing block as "no TITLE". So the result and the
// skeleton determine the ruleset, except for the order of its blocks.
func added(blocks, skeleton []block) string {
	var b strings.Builder
	for _, have := range blocks {
		i := slices.IndexFunc(skeleton, func(s block) bool { return s.title == have.title })
		switch {
		case i >= 0 && slices.Equal(skeleton[i].lines, have.lines):
			continue
		case i >= 0 && len(have.elements) > 0 && slices.Equal(skeleton[i].declaration, have.declaration):
			b.WriteString(have.title + "\n\t" + strings.Join(have.elements, "\n\t") + "\n")
		default:
			b.WriteString(strings.Join(have.lines, "\n") + "\n")
		}
	}
	for _, lost := range skeleton {
		if !slices.ContainsFunc(blocks, func(h block) bool { return h.title == lost.title }) {
			b.WriteString("no " + lost.title + "\n")
		}
	}
	return b.String()
}

// nftablesBlocks splits a table, as nft lists it, into its counters, maps, sets and chains.
func nftablesBlocks(table string) (blocks []block) {
	var current block
	inElements := false
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		depth := len(line) - len(strings.TrimLeft(line, "\t"))
		text := strings.TrimLeft(line, "\t")
		if depth == 0 {
			continue // the table itself
		}
		current.lines = append(current.lines, line[1:])
		switch {
		case depth == 1 && text != "}":
			current.title = strings.TrimSuffix(text, " {")
		case depth == 1:
			blocks, current = append(blocks, current), block{}
		case text == "elements = {" || inElements && depth == 2:
			inElements = !inElements
		case inElements:
			current.elements = append(current.elements, strings.TrimSuffix(text, ","))
		default:
			current.declaration = append(current.declaration, text)
		}
	}
	return blocks
}

// iptablesBlocks splits the input of iptables-restore into chains, each with its rules.
func iptablesBlocks(rules string) (blocks []block) {
	table := ""
	for line := range strings.Lines(rules) {
		line = strings.TrimSuffix(line, "\n")
		switch line[0] {
		case '*':
			table = line
			continue
		case 'C': // COMMIT
			continue
		}
		chain := strings.TrimPrefix(strings.Fields(line)[0], ":")
		if line[0] == '-' {
			chain = strings.Fields(line)[1]
		}
		title := table + " " + chain
		i := slices.IndexFunc(blocks, func(b block) bool { return b.title == title })
		if i < 0 {
			i = len(blocks)
			blocks = append(blocks, block{title: title, lines: []string{title}})
		}
		if line[0] == '-' {
			blocks[i].lines = append(blocks[i].lines, "\t"+strings.Replace(line, chain+" ", "", 1))
		}
	}
	return blocks
}
