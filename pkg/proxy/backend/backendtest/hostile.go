//go:build linux

package backendtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/hostile"
)

// RunHostile makes each attack of test/hostile, found in dir, and checks that the packets to the Services of others go where
// they went before, that the attack names nothing in the kernel, and that nothing of it is left when it is over. limits are
// the mode's. With -short, large attacks are left out.
func RunHostile(t *testing.T, dir, name string, limits plan.Limits, open Open) {
	b := NewBench(t, open)
	b.BackendName = name
	for _, victim := range cases.Named(t, dir, "") {
		victim.Options.Limits = limits
		alone := victim.Plan()
		b.Sync(t, alone)
		before := b.names(t)
		for _, attack := range hostile.Attacks() {
			if attack.Large && testing.Short() {
				continue
			}
			t.Run(victim.Family.String()+"/"+attack.Name, func(t *testing.T) {
				b.Sync(t, alone)
				began := time.Now()
				p := attacked(victim, attack, alone)
				computed := time.Now()
				for _, result := range b.Sync(t, p) {
					for _, refused := range result.Refused {
						t.Errorf("%s: %s is refused: %v", result.Family, refused.Port, refused.Cause)
					}
				}
				t.Logf("planned in %v, programmed in %v", computed.Sub(began), time.Since(computed))
				b.Ask(t, victim)
				for _, name := range b.names(t) {
					if strings.Contains(name, hostile.Mark) {
						t.Errorf("the attack named something in the kernel: %q", name)
					}
				}
				b.Sync(t, alone)
				if after := b.names(t); !slices.Equal(before, after) {
					t.Errorf("after the attack:\n%s\nbefore it:\n%s", after, before)
				}
			})
		}
	}
}

// attacked returns the plan for the victim's objects and the attacker's.
func attacked(victim *cases.Case, attack hostile.Attack, before *plan.Plan) *plan.Plan {
	// The problems of hostile objects are reported; see the tests of package cluster.
	snapshot, _ := victim.With(func(u *cluster.Update) { manifests.Apply(u, attack.Objects(victim.Family)) })
	return plan.Compute(snapshot, victim.Options, before)
}

// sized matches the number in the names of chains for pools of a size, which are made when they are needed.
var sized = regexp.MustCompile(`-\d+$`)

// names returns the names of all tables, chains, sets and maps of node1, sorted.
func (b *Bench) names(t *testing.T) []string {
	t.Helper()
	const list = `nft -t list ruleset | grep -E '^\s*(table|chain|set|map) '; for v in "" 6; do ip${v}tables-legacy-save | grep '^:' | cut -d' ' -f1; done`
	out, err := b.Lab.Node1.Command("sh", "-c", list).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		names = append(names, sized.ReplaceAllString(strings.Trim(line, " \t\n{"), ""))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
