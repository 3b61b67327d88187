package iptables

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// patch is what to write to get from one ruleset to another.
type patch struct {
	// writes are the chains to be made or rewritten in each table, in an order that is right at every step: whatever a rule
	// goes to is there, and complete, before the rule is. deletes are the chains that nothing goes to after that.
	writes  map[string][]write
	deletes map[string][]string
	// hooks are missing in built-in chains. Strays are there and not wanted; only a clean-up removes them, because another
	// program may have made them, except for those that lead to chains of ipvs mode.
	hooks, strays []hook
	// localnet means that node ports on 127.0.0.0/8 are to be made possible, and safe.
	localnet bool
}

// write is one chain to be written.
type write struct {
	name string
	// before are the lines that the chain has, if it is there.
	before, lines []line
	// unit is the port of a Service whose chains must be written together. A chain without a unit stands alone.
	unit portKey
	rank rank
}

// together reports whether two writes must be in one transaction.
func (w *write) together(o *write) bool { return w.unit != portKey{} && w.unit == o.unit }

// diff works out the patch from what there is to what there should be.
func diff(have, want *ruleset) *patch {
	p := &patch{writes: map[string][]write{}, deletes: map[string][]string{}, localnet: want.localnet && !have.localnet}
	for name, change := range cluster.Changes(have.chains, want.chains) {
		switch {
		case !change.Is:
			p.deletes[name.table] = append(p.deletes[name.table], name.name)
		case !change.Was || !change.Before.equal(change.After):
			w := write{name: name.name, lines: change.After.lines, rank: change.After.rank, unit: change.After.unit}
			if change.Was {
				w.before = change.Before.lines
			}
			p.writes[name.table] = append(p.writes[name.table], w)
		}
	}
	for _, writes := range p.writes {
		slices.SortStableFunc(writes, func(a, b write) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), a.unit.Compare(b.unit), strings.Compare(a.name, b.name))
		})
	}
	p.hooks = except(want.hooks, have.hooks)
	p.strays = slices.DeleteFunc(except(have.hooks, want.hooks), func(h hook) bool { return h.to == chainLocalnet })
	return p
}

// retired are the strays that only ipvs mode makes.
func (p *patch) retired() []hook {
	return slices.DeleteFunc(slices.Clone(p.strays), func(h hook) bool { return !(chainName{h.in.table, h.to}).retired() })
}

// except lists the hooks of a that b has not.
func except(a, b []hook) (missing []hook) {
	for _, h := range a {
		if !slices.ContainsFunc(b, h.equal) {
			missing = append(missing, h)
		}
	}
	return missing
}

// written counts the rules that are written to a table.
func (p *patch) written(table string) (n int) {
	for _, w := range p.writes[table] {
		n += len(w.lines)
	}
	return n
}

// gains reports whether any chain of a table gets a rule that it had not.
func (p *patch) gains(table string) bool {
	return slices.ContainsFunc(p.writes[table], func(w write) bool { return len(missing(w.lines, w.before)) > 0 })
}

// missing lists the lines of a that b has not.
func missing(a, b []line) []line {
	has := make(map[string]bool, len(b))
	for _, l := range b {
		has[l.text] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(l line) bool { return has[l.text] })
}

// both are the writes by which chains keep what they have beside what they get.
func both(writes []write) []write {
	out := slices.Clone(writes)
	for i, w := range out {
		out[i].lines = append(slices.Clone(w.lines), missing(w.before, w.lines)...)
	}
	return out
}

// losing are the writes that remove a rule.
func losing(writes []write) []write {
	return slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return len(missing(w.before, w.lines)) == 0 })
}
