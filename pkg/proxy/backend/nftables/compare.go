package nftables

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Explain is part of [backend.Renderer]: these rules do what the plan says.
func (Mode) Explain(p *plan.Plan, packet plan.Packet) plan.Path { return p.Explain(packet) }

// Compare implements [backend.Renderer].
func (m Mode) Compare(ctx context.Context, p *plan.Plan, family cluster.Family) (found []backend.Difference, err error) {
	err = onTable(family, func(table nft.Table) (err error) {
		found, err = compareTable(ctx, table, p, family, m.Options)
		return err
	})
	return found, err
}

// compareTable describes the differences between a table and a plan.
func compareTable(ctx context.Context, table nft.Table, p *plan.Plan, family cluster.Family, opts Options) ([]backend.Difference, error) {
	objects, err := table.Objects(ctx)
	if err != nil {
		return nil, err
	}
	if !objects.Exists {
		return []backend.Difference{{Object: "table " + dialectOf(family).ip + " " + TableName, Note: backend.NoteMissing}}, nil
	}
	opts.Counters = backend.CounterLimits{Counting: countedBy(objects)}
	want := opts.render(p, nothing(newSchema(family, opts.Counters.Counting, has(objects, setFast))))
	s := want.schema
	found, err := read(ctx, table, s)
	if err != nil {
		return nil, err
	}
	c := &comparison{patch: diff(found.state(&want.content), want), schema: s, writer: newWriter(s, p.Node, opts)}
	c.fixed(ctx, table, objects)
	c.chains()
	c.elements()
	slices.SortStableFunc(c.found, func(a, b backend.Difference) int { return strings.Compare(a.Object, b.Object) })
	return c.found, nil
}

// countedBy returns what the elements of a table count, by the names of its sets.
func countedBy(objects nf.Objects) backend.Counting {
	switch {
	case has(objects, mapServices+uncounted):
		return backend.CountNothing
	case has(objects, mapEndpoints+uncounted):
		return backend.CountServices
	default:
		return backend.CountEndpoints
	}
}

// has reports whether a table has a set or map.
func has(objects nf.Objects, name string) bool {
	return slices.ContainsFunc(objects.Sets, func(s nf.Set) bool { return s.Name == name })
}

// comparison describes a patch in words.
type comparison struct {
	*patch
	schema *schema
	writer *writer
	found  []backend.Difference
}

func (c *comparison) note(object, note string) {
	c.found = append(c.found, backend.Difference{Object: object, Note: note})
}

// fixed compares what does not depend on Services: the chains, the names of sets and maps, and their declarations.
func (c *comparison) fixed(ctx context.Context, table nft.Table, objects nf.Objects) {
	for _, name := range c.leftovers.chains {
		c.note("chain "+name, backend.NoteExtra)
	}
	for _, name := range append(slices.Clip(c.leftovers.sets), c.leftovers.maps...) {
		c.note("set "+name, backend.NoteExtra)
	}
	for _, name := range c.leftovers.flowtables {
		c.note("flowtable "+name, backend.NoteExtra)
	}
	for _, device := range c.addDevices {
		c.note("flowtable "+flowtable, "It lacks the device "+device.Name+".")
	}
	if c.skeleton == nil {
		return
	}
	known := len(c.found)
	for _, want := range c.schema.sets {
		if !has(objects, want.name) {
			c.note(want.title(), backend.NoteMissing)
		}
	}
	listed, err := table.Rules(ctx)
	for _, want := range c.skeleton.chains {
		at := slices.IndexFunc(objects.Chains, func(have nf.Chain) bool { return have.Name == want.name })
		switch {
		case at < 0:
			c.found = append(c.found, backend.Difference{Object: "chain " + want.name, Note: backend.NoteMissing, Missing: want.rules})
			continue
		case !want.hookedAs(objects.Chains[at]):
			c.note("chain "+want.name, "Its type, hook or priority is another one.")
		}
		c.rules(want, listed)
	}
	for _, t := range c.rewriteChains {
		c.rules(c.writer.chainOf(t, c.after), listed)
	}
	if name := "table " + c.schema.ip + " " + TableName; err != nil {
		c.note(name, "Its rules or declarations are not those that this version writes, and cannot be listed: "+err.Error())
	} else if len(c.found) == known {
		c.note(name, "Its chains are right, but its record of them is not: declarations of its sets, lists of source ranges, or objects of other kinds, may not be those that this version writes, or its last sync is to be repeated.")
	}
}

// rules compares the rules of a chain with those that were listed.
func (c *comparison) rules(want chain, listed map[string][]string) {
	rules, exists := listed[want.name]
	if d, differs := backend.CompareChain("chain "+want.name, want.rules, rules, canonical); exists && differs {
		c.found = append(c.found, d)
	}
}

var (
	zeros = regexp.MustCompile(`\b0x0+([0-9a-f])`)
	// ranges is a list of source ranges, whose chain is named after it.
	ranges   = regexp.MustCompile(`^(ct original ip6? saddr != ).*`)
	spelling = strings.NewReplacer(`"`, "", " burst 5 packets", "", "tcp flags ack / fin,syn,rst,ack", "tcp flags & (fin | syn | rst | ack) == ack")
)

// canonical makes rules equal that versions of nft list differently.
func canonical(rule string) string {
	return ranges.ReplaceAllString(zeros.ReplaceAllString(spelling.Replace(rule), "0x$1"), "$1")
}

// chains compares the chains that depend on Services, by their names.
func (c *comparison) chains() {
	for _, t := range c.addChains {
		c.found = append(c.found, backend.Difference{Object: "chain " + t.name(), Note: backend.NoteMissing, Missing: c.writer.chainOf(t, c.after).rules})
	}
	for _, t := range c.delChains {
		c.note("chain "+t.name(), backend.NoteExtra)
	}
	for _, port := range c.addSticky {
		c.note(c.schema.clients(port).title(), backend.NoteMissing)
	}
	for _, port := range c.delSticky {
		c.note(c.schema.clients(port).title(), backend.NoteExtra)
	}
}

// elements compares the elements of the sets.
func (c *comparison) elements() {
	missing, extra := map[*set][]string{}, map[*set][]string{}
	for set, e := range c.schema.only(c.after, c.before) {
		missing[set] = append(missing[set], set.text(&e))
	}
	for set, e := range c.schema.only(c.before, c.after) {
		extra[set] = append(extra[set], set.text(&e))
	}
	for _, stray := range c.strays {
		set := c.schema.named(stray.set)
		extra[set] = append(extra[set], fmt.Sprintf("an element with the key %x, which this proxy does not write", stray.key))
	}
	for _, set := range c.schema.sets {
		if len(missing[set])+len(extra[set]) > 0 {
			c.found = append(c.found, backend.Difference{Object: set.title(), Missing: missing[set], Extra: extra[set]})
		}
	}
}
