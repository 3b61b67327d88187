package backend

import (
	"context"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Renderer shows a Mode's rules. It uses no Backend, so any goroutine may call its methods.
type Renderer interface {
	// Render returns the rules that a plan makes in one family, as the mode's tool loads them, for a machine that
	// supports everything.
	Render(p *plan.Plan, family cluster.Family) string
	// Compare reads the kernel's rules of one family and returns where they differ from those that the plan makes, sorted
	// by object. It writes nothing. If the kernel has no rules of this mode, everything differs.
	Compare(ctx context.Context, p *plan.Plan, family cluster.Family) ([]Difference, error)
	// Explain returns what the rules of a plan do to a packet, which may not be what the plan says.
	Explain(p *plan.Plan, packet plan.Packet) plan.Path
}

// Difference is a difference between the kernel's rules and those of a plan, in one chain, set or map.
type Difference struct {
	// Object names it, as in "chain KUBE-SERVICES of table nat" or "map services".
	Object string
	// Note describes what Missing and Extra do not show.
	Note string
	// Missing are the rules or elements that only the plan has, Extra those that only the kernel has, as the mode's tool
	// writes them.
	Missing, Extra []string
}

// Notes about a chain, set or map that only one side has.
const (
	NoteMissing = "The kernel does not have it."
	NoteExtra   = "Only the kernel has it."
)

// CompareChain compares the rules that a chain should have and has, whose order counts. It reports whether they differ. Rules
// are equal if canonical makes them so.
func CompareChain(object string, want, have []string, canonical func(string) string) (d Difference, differs bool) {
	d = Difference{Object: object, Missing: without(want, have, canonical), Extra: without(have, want, canonical)}
	if len(d.Missing)+len(d.Extra) > 0 {
		return d, true
	}
	d.Note = "Its rules are in another order."
	return d, !slices.EqualFunc(want, have, func(a, b string) bool { return canonical(a) == canonical(b) })
}

// without returns the lines that occur more often in a than in b.
func without(a, b []string, canonical func(string) string) (only []string) {
	has := make(map[string]int, len(b))
	for _, line := range b {
		has[canonical(line)]++
	}
	for _, line := range a {
		key := canonical(line)
		if has[key] == 0 {
			only = append(only, line)
		} else {
			has[key]--
		}
	}
	return only
}
