package iptables

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Compare implements [backend.Renderer], for the variant of iptables that the node uses.
func (m Mode) Compare(ctx context.Context, p *plan.Plan, family cluster.Family) (_ []backend.Difference, err error) {
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return nil, err
	}
	door, err := ipt.Open(ctx, doorFamily(family), variant)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, door.Close()) }()
	r := &renderer{family: family, opts: m.Options, can: probe(door.Features(), m.Options, m.Settings)}
	want := &r.render(p, nil).ruleset
	have, err := read(ctx, door, want, true)
	if err != nil {
		return nil, err
	}
	return describe(have, want), nil
}

// describe lists the differences between two rulesets.
func describe(have, want *ruleset) []backend.Difference {
	patch := diff(have, want)
	var found []backend.Difference
	for table, writes := range patch.writes {
		for _, w := range writes {
			d, _ := backend.CompareChain(chainName{table, w.name}.title(), texts(w.body), texts(w.before), ipt.Canonical)
			if _, exists := have.chains.Get(chainName{table, w.name}); !exists {
				d.Note = backend.NoteMissing
			}
			found = append(found, d)
		}
	}
	for table, names := range patch.deletes {
		for _, name := range names {
			c, _ := have.chains.Get(chainName{table, name})
			found = append(found, backend.Difference{Object: chainName{table, name}.title(), Note: backend.NoteExtra, Extra: texts(c.body)})
		}
	}
	hooks := map[chainName]*backend.Difference{}
	in := func(h hook) *backend.Difference {
		if hooks[h.in] == nil {
			hooks[h.in] = &backend.Difference{Object: h.in.title()}
		}
		return hooks[h.in]
	}
	for _, h := range patch.hooks {
		in(h).Missing = append(in(h).Missing, h.rule.Text())
	}
	for _, h := range patch.strays {
		in(h).Extra = append(in(h).Extra, h.rule.Text())
	}
	for _, d := range hooks {
		found = append(found, *d)
	}
	slices.SortFunc(found, func(a, b backend.Difference) int { return strings.Compare(a.Object, b.Object) })
	return found
}

// title names a chain in a message.
func (c chainName) title() string { return "chain " + c.name + " of table " + c.table }

func texts(b body) []string {
	var all []string
	for _, r := range b.rules() {
		all = append(all, r.Text())
	}
	return all
}
