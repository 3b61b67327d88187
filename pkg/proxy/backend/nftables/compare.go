package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

var _ backend.Renderer = Mode{}

// Render implements [backend.Renderer].
func (m Mode) Render(p *plan.Plan, family cluster.Family) string { return Render(p, family, m.Options) }

// Compare implements [backend.Renderer].
func (m Mode) Compare(ctx context.Context, p *plan.Plan, family cluster.Family) (_ []backend.Difference, err error) {
	tables, err := openTables(nft.Open, []cluster.Family{family})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tables[0].Close()) }()
	found, err := compareTable(ctx, tables[0], p, family, m.Options)
	return found, wrap(family, err)
}

// compareTable describes the differences between a table and a plan.
func compareTable(ctx context.Context, table nft.Table, p *plan.Plan, family cluster.Family, opts Options) ([]backend.Difference, error) {
	objects, err := table.Objects(ctx)
	if err != nil {
		return nil, err
	}
	s := newSchema(family, countedBy(objects))
	if !objects.Exists {
		return []backend.Difference{{Object: "table " + string(s.nftFamily) + " " + TableName, Note: noteMissing}}, nil
	}
	have, err := read(ctx, table, s)
	if err != nil {
		return nil, err
	}
	c := &comparison{patch: diff(have, render(p, opts, nothing(s))), schema: s, writer: newWriter(s, p.Node, opts)}
	c.fixed(objects)
	c.chains()
	for _, set := range s.sets {
		c.elements(set)
	}
	slices.SortStableFunc(c.found, func(a, b backend.Difference) int { return strings.Compare(a.Object, b.Object) })
	return c.found, nil
}

// countedBy returns what the elements of a table count, by the names of its sets.
func countedBy(objects nft.Objects) backend.Counting {
	has := func(name string) bool {
		return slices.ContainsFunc(objects.Sets, func(s nft.Set) bool { return s.Name == name })
	}
	switch {
	case has(mapServices + uncounted):
		return backend.CountNothing
	case has(mapEndpoints + uncounted):
		return backend.CountServices
	default:
		return backend.CountEndpoints
	}
}

// comparison describes a patch in words.
type comparison struct {
	*patch
	schema *schema
	writer *writer
	found  []backend.Difference
}

const (
	noteMissing = "The kernel does not have it."
	noteExtra   = "Only the kernel has it."
)

func (c *comparison) note(object, note string) {
	c.found = append(c.found, backend.Difference{Object: object, Note: note})
}

// fixed compares what does not depend on Services: the names of chains, sets and maps; and the rules and declarations as a
// whole, because the kernel's are known by their digest only.
func (c *comparison) fixed(objects nft.Objects) {
	for _, name := range c.leftovers.chains {
		c.note("chain "+name, noteExtra)
	}
	for _, name := range append(slices.Clip(c.leftovers.sets), c.leftovers.maps...) {
		c.note("set "+name, noteExtra)
	}
	if c.skeleton == nil {
		return
	}
	missing := len(c.found)
	for _, want := range c.skeleton.chains {
		if !slices.ContainsFunc(objects.Chains, func(have nft.Chain) bool { return have.Name == want.name }) {
			c.found = append(c.found, backend.Difference{Object: "chain " + want.name, Note: noteMissing, Missing: want.rules})
		}
	}
	for _, want := range c.schema.sets {
		if !slices.ContainsFunc(objects.Sets, func(have nft.Set) bool { return have.Name == want.name }) {
			c.note(want.title(), noteMissing)
		}
	}
	if len(c.found) == missing {
		c.note("table "+string(c.schema.nftFamily)+" "+TableName,
			"Rules of its chains, or declarations of its sets, are not those that this version writes; nft list table shows them.")
	}
}

// chains compares the chains that depend on Services, by their names.
func (c *comparison) chains() {
	for _, t := range c.addChains {
		rules := c.writer.chain(t).rules
		if list, ok := c.after.lists.Get(t); ok {
			rules = c.writer.fromChain(t, list).rules
		}
		c.found = append(c.found, backend.Difference{Object: "chain " + t.name(), Note: noteMissing, Missing: rules})
	}
	for _, t := range c.delChains {
		c.note("chain "+t.name(), noteExtra)
	}
	for _, t := range c.addTimeouts {
		c.note(c.schema.clients(t).title(), noteMissing)
	}
	for _, t := range c.delTimeouts {
		c.note(c.schema.clients(t).title(), noteExtra)
	}
}

// elements compares the elements of a set.
func (c *comparison) elements(s *set) {
	var want, have []string
	if s.members != nil {
		list := func(to *[]string) func(element) bool {
			return func(e element) bool { *to = append(*to, s.text(&e)); return true }
		}
		s.members.added(c.before, c.after, list(&want))
		s.members.added(c.after, c.before, list(&have))
	}
	for _, change := range c.frontends {
		if s.cells != nil && s.nodePort == change.frontend.IsNodePort() {
			want = append(want, s.texts(change.frontend, change.after)...)
			have = append(have, s.texts(change.frontend, change.before)...)
		}
	}
	for _, stray := range c.strays {
		if stray.set == s.name {
			have = append(have, fmt.Sprintf("an element with the key %x, which this proxy does not write", stray.key))
		}
	}
	d := backend.Difference{Object: s.title()}
	if d.Differ(want, have, strings.TrimSpace) {
		c.found = append(c.found, d)
	}
}

// texts returns the elements of an entry in the set. The entry may be nil.
func (s *set) texts(frontend plan.Frontend, of *entry) (all []string) {
	if of == nil {
		return nil
	}
	for i := range s.cells.count(of) {
		e := element{frontend: frontend}
		if s.cells.get(of, i, &e) {
			all = append(all, s.text(&e))
		}
	}
	return all
}
