package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// noSettings is a kernel without settings.
type noSettings struct{}

func (noSettings) Read(name string) (string, error) { return "", fmt.Errorf("no setting %s", name) }

func (noSettings) Write(name, _ string) error { return fmt.Errorf("no setting %s", name) }

var testOptions = Options{Mark: 0x4000}

// fakes returns a backend on fake tables of both families.
func fakes(t testing.TB, variant ipt.Variant) (*Backend, []*ipttest.Fake) {
	doors := []*ipttest.Fake{ipttest.New(ipt.IPv4, variant), ipttest.New(ipt.IPv6, variant)}
	return restarted(t, doors), doors
}

// restarted returns a new backend on the same tables.
func restarted(t testing.TB, doors []*ipttest.Fake) *Backend {
	return newBackend(t, noSettings{}, doors[0], doors[1])
}

// holds checks that the tables equal the plan, and that a new process agrees.
func holds(t *testing.T, b *Backend, p *plan.Plan) {
	t.Helper()
	for _, f := range b.families {
		have, err := read(context.Background(), f.door, &ruleset{}, true)
		if err != nil {
			t.Fatal(err)
		}
		want := (&renderer{family: f.is, opts: testOptions, can: f.renderer.can}).render(p, nil)
		if d := cmp.Diff(dump(&want.ruleset), dump(have)); d != "" {
			t.Fatalf("%s: the tables differ from the plan (-want +have):\n%s", f.is, d)
		}
		if p := diff(have, &want.ruleset); len(p.writes)+len(p.deletes)+len(p.hooks) > 0 {
			t.Fatalf("%s: the tables equal the plan, but diff finds %v", f.is, p)
		}
		rules := map[string]int{}
		for name, chain := range have.chains.All() {
			rules[name.table] += chain.len()
		}
		for name, chain := range want.chains.All() {
			if n := len(chain.rules()); n != chain.count {
				t.Fatalf("%s: %v is said to have %d rules, and has %d", f.is, name, chain.count, n)
			}
		}
		for table, rules := range rules {
			if f.held != nil && f.rules[table] != rules {
				t.Fatalf("%s: table %s has %d rules, and is said to have %d", f.is, table, rules, f.rules[table])
			}
		}
	}
}

// dump formats a ruleset for comparison.
func dump(r *ruleset) []string {
	var lines []string
	for name, chain := range r.chains.All() {
		lines = append(lines, ":"+name.table+" "+name.name)
		for _, l := range chain.rules() {
			lines = append(lines, name.name+" "+strings.ReplaceAll(ipt.Canonical(l.Text()), "\x00", " | "))
		}
	}
	for _, h := range r.hooks {
		lines = append(lines, fmt.Sprint(h.in, h.to, ipt.Canonical(h.rule.Text())))
	}
	slices.Sort(lines)
	return lines
}

// sync calls Sync and fails on an error.
func sync(t *testing.T, b *Backend, p *plan.Plan) (rules int) {
	t.Helper()
	results := b.Sync(context.Background(), p)
	for _, result := range results {
		rules += result.Rules
	}
	if err := joined(results); err != nil {
		t.Fatal(err)
	}
	return rules
}

func joined(results []backend.Result) error {
	var failed []error
	for _, result := range results {
		failed = append(failed, result.Err)
	}
	return errors.Join(failed...)
}

// variants runs a test for both variants.
func variants(t *testing.T, test func(t *testing.T, variant ipt.Variant)) {
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		t.Run(string(variant), func(t *testing.T) { test(t, variant) })
	}
}

// TestTablesFollowPlans applies random plans to one backend: after each, the tables equal those that a new process writes.
func TestTablesFollowPlans(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		for _, many := range []int{5, 12, 140} {
			for seed := range uint64(2) {
				w := clusters.NewRandom(seed, many)
				b, _ := fakes(t, variant)
				for range 15 {
					p := w.Step()
					sync(t, b, p)
					holds(t, b, p)
					if rules := sync(t, b, p); rules != 0 {
						t.Fatalf("a second sync of one plan wrote %d rules", rules)
					}
				}
			}
		}
	})
}

// TestCacheChangesNothing renders each plan with and without the previous rendering.
func TestCacheChangesNothing(t *testing.T) {
	for _, many := range []int{12, 200} {
		w := clusters.NewRandom(1, many)
		r := map[cluster.Family]*renderer{}
		last := map[cluster.Family]*rendering{}
		for range 60 {
			p := w.Step()
			for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
				r[family] = &renderer{family: family, opts: testOptions}
				cached, fresh := r[family].render(p, last[family]), r[family].render(p, nil)
				if d := cmp.Diff(dump(&fresh.ruleset), dump(&cached.ruleset)); d != "" {
					t.Fatalf("%s (-fresh +cached):\n%s", family, d)
				}
				last[family] = cached
			}
		}
	}
}

// TestRestart replaces the backend after each plan: with the same plan, the new one writes nothing.
func TestRestart(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		w := clusters.NewRandom(2, 40)
		b, doors := fakes(t, variant)
		for range 30 {
			p := w.Step()
			sync(t, b, p)
			b = restarted(t, doors)
			if rules := sync(t, b, p); rules != 0 {
				t.Fatalf("a restart with nothing changed wrote %d rules", rules)
			}
			b = restarted(t, doors)
		}
	})
}

// TestFailedWrites lets one write in ten fail: repeated syncs succeed eventually, with the right result.
func TestFailedWrites(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		w := clusters.NewRandom(3, 20)
		b, doors := fakes(t, variant)
		fail := func(p float64) {
			for i, door := range doors {
				door.FailRandomly(p, w.Uint64()+uint64(i))
			}
		}
		for range 60 {
			p := w.Step()
			fail(0.1)
			for attempts := 0; ; attempts++ {
				err := joined(b.Sync(context.Background(), p))
				if err == nil {
					break
				}
				if !errors.Is(err, ipttest.ErrInjected) || attempts == 100 {
					t.Fatal(err)
				}
			}
			fail(0)
			holds(t, b, p)
		}
	})
}

// TestPatchSize checks the cost of changing one endpoint, at several sizes of the cluster.
func TestPatchSize(t *testing.T) {
	for _, services := range []int{10, 10_000} {
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			c := clusters.NewSized(services, 3)
			b, doors := fakes(t, ipt.NFT)
			sync(t, b, c.Plan())
			for _, step := range []struct {
				name      string
				endpoints int
				rules     int
			}{ // the chain, its masquerade rule, and a rule for each endpoint
				{"one more endpoint", 4, 1 + 1 + 4},
				{"one fewer", 3, 1 + 1 + 3},
				{"one replaced", -3, 1 + 1 + 3},
			} {
				c.Set(5, step.endpoints)
				before := doors[0].Stats().Restores
				rules := sync(t, b, c.Plan())
				if restores := doors[0].Stats().Restores - before; rules != step.rules || restores != 1 {
					t.Errorf("%s: %d rules in %d transactions, want %d in 1", step.name, rules, restores, step.rules)
				}
			}
			c.Set(services, 3)
			// A new Service: its chain, and one leaf.
			if rules := sync(t, b, c.Plan()); rules > 1+1+3+1+leaf {
				t.Errorf("one more Service: %d rules", rules)
			}
		})
	}
}
