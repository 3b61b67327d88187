package iptables

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

// TestDescribe compares the tables with the plan that they were written from, and then after another program changed them.
func TestDescribe(t *testing.T) {
	door := ipttest.New(ipt.IPv4, ipt.NFT)
	b, c := newBackend(t, settings(nil), door), clusters.NewSized(2, 2)
	is := func(when string, want ...string) {
		t.Helper()
		r := &renderer{family: cluster.IPv4, opts: testOptions, can: probe(door.Features(), testOptions, settings(nil))}
		desired := &r.render(c.Plan(), nil).ruleset
		have, err := read(t.Context(), door, desired, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, laws.Lines(describe(have, desired))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	sync(t, b, c.Plan())
	is("with the rules of the plan")
	chain := portKey{"default/service-1", cluster.TCP}.chain(prefixCluster)
	rules, err := door.Rules(t.Context(), tableNAT, chain)
	if err != nil || len(rules) != 3 {
		t.Fatalf("%q, %v", rules, err)
	}
	input := "*nat\n:KUBE-SEP-THEIRS - [0:0]\n-A KUBE-SEP-THEIRS -j RETURN\n:" + chain + " - [0:0]\n-A " + chain + " " + rules[0] + "\n-A " + chain + " -j RETURN\nCOMMIT\n"
	if err := door.Restore(t.Context(), input); err != nil {
		t.Fatal(err)
	}
	if err := door.Delete(t.Context(), tableNAT, "OUTPUT", ipt.Listed("-m comment")); err != nil {
		t.Fatal(err)
	}
	is("after another program changed them",
		"chain KUBE-SEP-THEIRS of table nat: Only the kernel has it.", "- -j RETURN",
		"chain "+chain+" of table nat:", "- -j RETURN", "+ "+rules[1], "+ "+rules[2])
}

// TestDriftDetails checks that a drift names all chains that another program changed.
func TestDriftDetails(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(t, variant)
		sync(t, b, clusters.NewSized(2, 2).Plan())
		check(t, b, 0)
		first, second := portKey{"default/service-0", cluster.TCP}.chain(prefixCluster), portKey{"default/service-1", cluster.TCP}.chain(prefixCluster)
		input := "*nat\n:" + first + " - [0:0]\n:" + second + " - [0:0]\nCOMMIT\n"
		if err := door.Restore(t.Context(), input); err != nil {
			t.Fatal(err)
		}
		drifts, err := b.Check(t.Context())
		if err != nil || len(drifts) != 1 {
			t.Fatalf("Check says %v, %v", drifts, err)
		}
		want := []string{"the chain " + first + " of table nat", "the chain " + second + " of table nat"}
		slices.Sort(want)
		if diff := cmp.Diff(want, drifts[0].Details); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
