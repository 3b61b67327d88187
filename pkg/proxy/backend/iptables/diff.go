package iptables

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// patch is what to write to get from one ruleset to another.
type patch struct {
	// writes are the chains to be made or rewritten, in an order that is right at every step: whatever a rule goes to is
	// there, and complete, before the rule is. deletes are the chains that nothing goes to after that.
	writes  map[string][]write
	deletes map[string][]string
	// jumps are missing in built-in chains. Strays are there and not wanted; only a clean-up touches them, because somebody
	// else may have made them, except for those that lead to chains of ipvs mode.
	jumps, strays []jump
	// localnet asks for node ports on 127.0.0.0/8 to be made possible, and safe.
	localnet bool
}

// write is one chain to be written.
type write struct {
	name string
	// before are the lines that the chain has, if it is there.
	before, lines []line
	// unit names what must be written together: the chains of one port of a Service. Others stand alone.
	unit string
	rank int
}

// diff works out the patch from what there is to what there should be.
func diff(have, want *ruleset) *patch {
	p := &patch{writes: map[string][]write{}, deletes: map[string][]string{}, localnet: want.localnet && !have.localnet}
	for name, change := range cluster.Changes(have.chains, want.chains) {
		switch {
		case !change.Is:
			p.deletes[name.table] = append(p.deletes[name.table], name.name)
		case !change.Was || !sameRules(change.Before, change.After):
			w := write{name: name.name, lines: change.After.lines, rank: rankOf(name.name), unit: name.name}
			if change.After.unit != "" {
				w.unit = change.After.unit
			}
			if change.Was {
				w.before = change.Before.lines
			}
			p.writes[name.table] = append(p.writes[name.table], w)
		}
	}
	for _, writes := range p.writes {
		slices.SortStableFunc(writes, func(a, b write) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.unit, b.unit), strings.Compare(a.name, b.name))
		})
	}
	for _, names := range p.deletes {
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(deleteRank(a), deleteRank(b)) })
	}
	for _, j := range want.jumps {
		if !slices.ContainsFunc(have.jumps, j.equal) {
			p.jumps = append(p.jumps, j)
		}
	}
	for _, j := range have.jumps {
		if j.to != chainLocalnet && !slices.ContainsFunc(want.jumps, j.equal) {
			p.strays = append(p.strays, j)
		}
	}
	return p
}

// retired are the strays that only ipvs mode makes.
func (p *patch) retired() []jump {
	return slices.DeleteFunc(slices.Clone(p.strays), func(j jump) bool { return !(chainName{j.from.table, j.to}).retired() })
}

func (j jump) equal(o jump) bool {
	return j.from == o.from && j.to == o.to && slices.Equal(groups(j.match), groups(o.match))
}

// The ranks of chains: those that go nowhere, those of Services' ports, the trees from their leaves up, and at last
// those that the built-in chains lead to.
const (
	rankFixed = iota
	rankPort
	rankTree
	rankTop = rankTree + 64
)

func rankOf(name string) int {
	switch name {
	case chainMark, chainCanary:
		return rankFixed
	case chainServices, chainExternal, chainNodePorts, chainForward, chainFirewall, chainPostrouting:
		return rankTop
	}
	for _, d := range dispatches() {
		if strings.HasPrefix(name+"-", d.stem) {
			return rankTop - 1 - len(name) + len(strings.TrimSuffix(d.stem, "-")) // deeper chains have longer names
		}
	}
	return rankPort
}

// deleteRank sorts chains so that one comes before those that it goes to.
func deleteRank(name string) int {
	for rank, prefix := range []string{prefixFirewall, prefixExternal, prefixOldLocal, prefixLocal, prefixCluster, prefixEndpoint} {
		if strings.HasPrefix(name, prefix) && rankOf(name) == rankPort {
			return rank
		}
	}
	if rankOf(name) == rankFixed {
		return rankTop
	}
	return -rankOf(name)
}

// sameRules tells whether two chains mean the same. Lines that iptables wrote may have their parts in another order.
func sameRules(a, b *chain) bool {
	if len(a.lines) != len(b.lines) {
		return false
	}
	for i := range a.lines {
		same := a.lines[i].text == b.lines[i].text
		if !same && (a.read || b.read) {
			same = canonical(a.lines[i].text) == canonical(b.lines[i].text)
		}
		if !same {
			return false
		}
	}
	return true
}

// written counts the rules that are written to a table.
func (p *patch) written(table string) (n int) {
	for _, w := range p.writes[table] {
		n += len(w.lines)
	}
	return n
}

// gains tells whether any chain of a table gets a rule that it had not.
func (p *patch) gains(table string) bool {
	return slices.ContainsFunc(p.writes[table], func(w write) bool { return len(missing(w.lines, w.before)) > 0 })
}

// missing lists the lines of a that b has not.
func missing(a, b []line) []line {
	has := make(map[string]bool, len(b))
	for _, l := range b {
		has[l.text] = true
	}
	var out []line
	for _, l := range a {
		if !has[l.text] {
			out = append(out, l)
		}
	}
	return out
}

// both are the writes by which chains keep what they have beside what they get.
func both(writes []write) []write {
	out := slices.Clone(writes)
	for i, w := range out {
		out[i].lines = append(slices.Clone(w.lines), missing(w.before, w.lines)...)
	}
	return out
}

// losing are the writes that take something away.
func losing(writes []write) []write {
	return slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return len(missing(w.before, w.lines)) == 0 })
}
