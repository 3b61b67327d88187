package iptables

import (
	"context"
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
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

// settings are kernel settings in memory; nil is a kernel without any. None can be written if it has the key "refuse", which is the error.
type settings map[string]string

func (s settings) Read(name string) (string, error) {
	if value, ok := s[name]; ok {
		return value, nil
	}
	return "", fmt.Errorf("no setting %s", name)
}

func (s settings) Write(name, value string) error {
	if s["refuse"] != "" || s == nil {
		return fmt.Errorf("set %s: %s", name, s["refuse"])
	}
	s[name] = value
	return nil
}

var testOptions = Options{Mark: 0x4000}

// fakes returns a backend on fake tables of both families.
func fakes(t testing.TB, variant ipt.Variant) (*Backend, []*ipttest.Fake) {
	doors := []*ipttest.Fake{ipttest.New(ipt.IPv4, variant), ipttest.New(ipt.IPv6, variant)}
	return restarted(t, doors), doors
}

// restarted returns a new backend on the same tables.
func restarted(t testing.TB, doors []*ipttest.Fake) *Backend {
	return newBackend(t, settings(nil), doors[0], doors[1])
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

// sync calls Sync, fails on an error, and returns how many rules were written.
func sync(t testing.TB, b *Backend, p *plan.Plan) (rules int) {
	t.Helper()
	_, rules = laws.Sync(t, b, p)
	return rules
}

// variants runs a test for both variants.
func variants(t *testing.T, test func(t *testing.T, variant ipt.Variant)) {
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		t.Run(string(variant), func(t *testing.T) { test(t, variant) })
	}
}

// law returns fake tables for the laws of all backends.
func law(variant ipt.Variant) *laws.Tables {
	tables, _ := lawAndFake(variant)
	return tables
}

// lawAndFake returns them with the door of IPv4.
func lawAndFake(variant ipt.Variant) (*laws.Tables, *ipttest.Fake) {
	doors := []*ipttest.Fake{ipttest.New(ipt.IPv4, variant), ipttest.New(ipt.IPv6, variant)}
	return &laws.Tables{
		Open: func() backend.Backend {
			return New(testOptions, settings(nil), ipttest.NewNotices(doors...), doors[0], doors[1])
		},
		Holds: func(t *testing.T, b backend.Backend, p *plan.Plan) { holds(t, b.(*Backend), p) },
		Content: func(t *testing.T) (all []string) {
			for _, door := range doors {
				have, err := read(t.Context(), door, &ruleset{}, true)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, dump(have)...)
			}
			return all
		},
		Dump:   func() string { return doors[0].Dump() },
		Writes: func() int { return doors[0].Stats().Restores },
		Reads:  func() int { return doors[0].Stats().Saves },
		Fail: func(p float64, seed uint64) {
			for i, door := range doors {
				door.FailRandomly(p, seed+uint64(i))
			}
		},
		Injected: ipttest.ErrInjected,
	}, doors[0]
}

// lawful runs a test of fake tables for both variants.
func lawful(t *testing.T, test func(t *testing.T, open func() *laws.Tables)) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		test(t, func() *laws.Tables { return law(variant) })
	})
}

func TestTablesFollowPlans(t *testing.T) {
	lawful(t, func(t *testing.T, open func() *laws.Tables) {
		laws.FollowPlans(t, open, laws.Thorough[uint64](1, 4), 5, 12, 140)
	})
}

func TestWithoutCaches(t *testing.T) {
	lawful(t, func(t *testing.T, open func() *laws.Tables) {
		laws.WithoutCaches(t, open, laws.Thorough[uint64](1, 2), 12, 140)
	})
}

func TestRestart(t *testing.T) {
	lawful(t, func(t *testing.T, open func() *laws.Tables) { laws.Restart(t, open(), 40) })
}

func TestFailedWrites(t *testing.T) {
	lawful(t, func(t *testing.T, open func() *laws.Tables) { laws.FailedWrites(t, open(), 20) })
}

func TestGateRestart(t *testing.T) {
	lawful(t, func(t *testing.T, open func() *laws.Tables) {
		laws.ExternalIPs(t, open(), "-d 198.", true)
	})
}

func TestCacheChangesNothing(t *testing.T) {
	for _, many := range []int{12, 200} {
		laws.CacheChangesNothing(t, many, func(family cluster.Family, p *plan.Plan, last *rendering) *rendering {
			return (&renderer{family: family, opts: testOptions}).render(p, last)
		}, func(r *rendering) []string { return dump(&r.ruleset) })
	}
}

// TestPatchSize writes the chain, its masquerade rule, and a rule for each endpoint.
func TestPatchSize(t *testing.T) {
	laws.PatchSize(t, func() *laws.Tables { return law(ipt.NFT) },
		laws.Cost{Change: "one more endpoint", Endpoints: 4, Rules: 1 + 1 + 4, Transactions: 1},
		laws.Cost{Change: "one fewer", Endpoints: 3, Rules: 1 + 1 + 3, Transactions: 1},
		laws.Cost{Change: "one replaced", Endpoints: -3, Rules: 1 + 1 + 3, Transactions: 1})
}

// TestNewServicePatchSize adds a Service: its chain, and one leaf.
func TestNewServicePatchSize(t *testing.T) {
	for _, services := range []int{10, 10_000} {
		c := clusters.NewSized(services, 3)
		b, _ := fakes(t, ipt.NFT)
		sync(t, b, c.Plan())
		c.Set(services, 3)
		if rules := sync(t, b, c.Plan()); rules > 1+1+3+1+leaf {
			t.Errorf("one more than %d Services: %d rules", services, rules)
		}
	}
}
