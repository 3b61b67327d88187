package iptables

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// patch holds the writes that change one ruleset into another.
type patch struct {
	// writes are the chains to create or rewrite in each table, ordered so that a chain exists and is complete before a
	// rule jumps to it. deletes are the chains that are unused after that.
	writes  map[string][]write
	deletes map[string][]string
	// hooks are missing in built-in chains. Strays exist and are not wanted; they are removed only by cleanup, because
	// another program may have created them, except for jumps to chains of ipvs mode.
	hooks, strays []hook
	// localnet means that node ports on 127.0.0.0/8 must be set up.
	localnet bool
}

// write is one chain to be written.
type write struct {
	name string
	// before holds the current rules of the chain, if it exists.
	before, body body
	// unit is the port of a Service whose chains must be written together. A chain without a unit is written independently.
	unit portKey
	rank rank
}

// together reports whether two writes must be in one transaction.
func (w *write) together(o *write) bool { return w.unit != portKey{} && w.unit == o.unit }

// diff returns the patch that changes the first ruleset into the second.
func diff(have, want *ruleset) *patch {
	p := &patch{writes: map[string][]write{}, deletes: map[string][]string{}, localnet: want.localnet && !have.localnet}
	if added := want.chains.Len() - have.chains.Len(); added > 0 { // almost all of them in the table nat
		p.writes[tableNAT] = make([]write, 0, added)
	}
	for name, change := range cluster.Changes(have.chains, want.chains) {
		switch {
		case !change.Is:
			p.deletes[name.table] = append(p.deletes[name.table], name.name)
		case !change.Was || !change.Before.equal(change.After):
			w := write{name: name.name, body: change.After.body, rank: change.After.rank, unit: change.After.unit}
			if change.Was {
				w.before = change.Before.body
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

// retired returns the strays that only ipvs mode creates.
func (p *patch) retired() []hook {
	return slices.DeleteFunc(slices.Clone(p.strays), func(h hook) bool { return !(chainName{h.in.table, h.to}).retired() })
}

// except returns the hooks of a that are not in b.
func except(a, b []hook) (missing []hook) {
	for _, h := range a {
		if !slices.ContainsFunc(b, h.equal) {
			missing = append(missing, h)
		}
	}
	return missing
}

// written returns the number of rules to be written to a table.
func (p *patch) written(table string) (n int) {
	for _, w := range p.writes[table] {
		n += w.body.count
	}
	return n
}

// gains reports whether a chain of the table gets a new rule.
func (p *patch) gains(table string) bool {
	return slices.ContainsFunc(p.writes[table], func(w write) bool { return len(missing(w.body, w.before)) > 0 })
}

// missing returns the rules of a that are not in b.
func missing(a, b body) []ipt.Rule {
	has := make(map[string]bool, b.count)
	for _, r := range b.rules() {
		has[r.Text()] = true
	}
	return slices.DeleteFunc(a.rules(), func(r ipt.Rule) bool { return has[r.Text()] })
}

// both returns the writes after which chains have both their old and their new rules.
func both(writes []write) []write {
	out := slices.Clone(writes)
	for i, w := range out {
		out[i].body = kept(append(w.body.rules(), missing(w.before, w.body)...))
	}
	return out
}

// losing returns the writes that remove a rule.
func losing(writes []write) []write {
	return slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return len(missing(w.before, w.body)) == 0 })
}
