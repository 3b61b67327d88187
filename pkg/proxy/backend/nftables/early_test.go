package nftables

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestReadEarly reads the tables before the first Sync, which does not read them again unless another program wrote meanwhile. It
// finds what that program changed.
func TestReadEarly(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*testing.T, *nfttest.Fake) error
		changed   bool
	}{
		"nobody writes": {func(*testing.T, *nfttest.Fake) error { return nil }, false},
		"another program deletes an endpoint": {func(t *testing.T, f *nfttest.Fake) error {
			return f.External().DeleteElement(mapEndpoints, firstKey(t, f, mapEndpoints))
		}, true},
		"another program replaces an endpoint": {func(t *testing.T, f *nfttest.Fake) error {
			return replaceEndpoint(f, firstKey(t, f, mapEndpoints))
		}, true},
		"another program deletes the table": {func(_ *testing.T, f *nfttest.Fake) error { return f.External().FlushRuleset() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := clusters.NewSized(20, 3).Plan()
			table := newHooked()
			mustSync(t, newBackend(testOptions, table), p)

			b := newBackend(testOptions, table)
			table.used = 0
			b.ReadEarly(t.Context())
			if table.used == 0 {
				t.Error("ReadEarly read nothing")
			}
			if err := test.meanwhile(t, table.Fake); err != nil {
				t.Fatal(err)
			}
			table.used = 0
			results := b.Sync(t.Context(), p)
			if err := results[0].Err; err != nil || !results[0].Read {
				t.Errorf("Sync: %v; the kernel's state was read: %v", err, results[0].Read)
			}
			if !test.changed && table.used > 0 {
				t.Errorf("Sync read %d elements again", table.used)
			}
			if wrote := results[0].Elements+results[0].Rules > 0; wrote != test.changed {
				t.Errorf("Sync wrote %d elements and %d rules, want any: %v", results[0].Elements, results[0].Rules, test.changed)
			}
			holds(t, b, p)
			if drifts, err := b.Check(t.Context()); len(drifts) > 0 || err != nil {
				t.Errorf("what changed before the first Sync is reported as drift: %v, %v", drifts, err)
			}
		})
	}
}

// TestReadSharesWithPlan reads the table of one plan for another one. The result is the same for every plan, with all slots, and
// keeps nothing of its own that the same plan has.
func TestReadSharesWithPlan(t *testing.T) {
	for seed := range uint64(10) {
		w := clusters.NewRandom(seed, 12)
		b, _ := fakes()
		plans := []*plan.Plan{w.Step(), w.Step(), w.Step(), {Node: &plan.Node{}}}
		for _, p := range plans {
			mustSync(t, b, p)
			for _, f := range b.families {
				alone := listed(asRead(t, f.table, f.schema, largeSet))
				for _, of := range plans {
					found, err := read(t.Context(), f.table, f.schema)
					if err != nil {
						t.Fatal(err)
					}
					want := render(of, testOptions, nothing(f.schema))
					have := found.state(&want.content)
					if d := cmp.Diff(alone, listed(have)); d != "" {
						t.Fatalf("seed %d, %s: reading it for another plan gives another result (-alone +for the plan):\n%s", seed, f.schema.family, d)
					}
					for frontend, change := range cluster.Changes(have.holds.frontends, want.frontends) {
						if of == p && change.Was && change.Is && described(change.Before) == described(change.After) {
							t.Errorf("seed %d: there are two equal entries of %v", seed, frontend)
						}
					}
				}
			}
		}
	}
}

// described describes what the table holds of an entry.
func described(e *entry) string { return fmt.Sprint(e.terms, e.slots, e.getRare()) }

// listed lists all elements with their slots.
func listed(s *state) (lines []string) {
	for set, e := range s.holds.schema.elements(&s.holds.content) {
		lines = append(lines, set.name+" "+set.text(&e))
	}
	return lines
}

// TestReadEarlyFails leaves the reading to the first Sync.
func TestReadEarlyFails(t *testing.T) {
	p := clusters.NewSized(20, 3).Plan()
	b, tables := fakes()
	mustSync(t, b, p)
	b = newBackend(testOptions, tables[0], tables[1])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.ReadEarly(ctx)
	if elements, rules := mustSync(t, b, p); elements+rules > 0 {
		t.Errorf("Sync wrote %d elements and %d rules although nothing changed", elements, rules)
	}
	holds(t, b, p)
}
