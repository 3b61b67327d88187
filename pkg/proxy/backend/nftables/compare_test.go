package nftables

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// compared compares a fake table with the plan of a cluster, and returns a line for each difference.
func compared(t *testing.T, table nft.Table, c *clusters.Sized) []string {
	t.Helper()
	found, err := compareTable(t.Context(), table, c.Plan(), cluster.IPv4, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, d := range found {
		lines = append(lines, strings.TrimSpace(d.Object+": "+d.Note))
		for _, line := range d.Extra {
			lines = append(lines, "- "+line)
		}
		for _, line := range d.Missing {
			lines = append(lines, "+ "+line)
		}
	}
	return lines
}

// TestCompare compares a table with the plan that it was written from, then with another plan, and then after another program
// changed it.
func TestCompare(t *testing.T) {
	table := nft.NewFake(knftables.IPv4Family, TableName)
	b, c := New(testOptions, table), clusters.NewSized(2, 2)
	is := func(when string, want ...string) {
		t.Helper()
		if want == nil {
			want = []string{}
		}
		if diff := cmp.Diff(want, compared(t, table, c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	is("without a table", "table ip kube-proxy: The kernel does not have it.")
	sync(t, b, c.Plan())
	is("with the table of the plan")
	c.Set(1, 1)
	is("with one endpoint less",
		"chain internal-1: The kernel does not have it.", "+ ip saddr != 10.0.0.0/9 meta mark set meta mark | 0x00004000", "+ goto pick-1",
		"map endpoints:", "- 172.0.0.1 . tcp . 80 . 1 : 10.0.1.1 . 8080",
		"map services:", `- 172.0.0.1 . tcp . 80 comment "default/service-1" : goto internal-2`,
		`+ 172.0.0.1 . tcp . 80 comment "default/service-1" : goto internal-1`)
	c.Set(1, 2)
	if err := errors.Join(table.External().AddRule("nat-prerouting", "accept"),
		table.External().DeleteElement(mapServices, firstKey(t, table, mapServices))); err != nil {
		t.Fatal(err)
	}
	is("after another program changed it", "map services:", `+ 172.0.0.0 . tcp . 80 comment "default/service-0" : goto internal-2`,
		"table ip kube-proxy: Rules of its chains, or declarations of its sets, are not those that this version writes; nft list table shows them.")
}

// TestDriftDetails checks that a drift names what another program changed.
func TestDriftDetails(t *testing.T) {
	for name, test := range map[string]struct {
		tamper func(*testing.T, *nft.Fake) error
		want   []string
	}{
		"a rule":  {func(_ *testing.T, f *nft.Fake) error { return f.External().AddRule("nat-prerouting", "accept") }, []string{"chain nat-prerouting was changed"}},
		"a chain": {func(_ *testing.T, f *nft.Fake) error { return f.External().Run(addChain(f, "theirs")) }, []string{"chain theirs was added"}},
		"an element": {func(t *testing.T, f *nft.Fake) error {
			return f.External().DeleteElement(mapEndpoints, firstKey(t, f, mapEndpoints))
		}, []string{"set endpoints had 3 elements instead of 4"}},
		"another element": {func(t *testing.T, f *nft.Fake) error { return replaceEndpoint(f, firstKey(t, f, mapEndpoints)) },
			[]string{"map endpoints lacked 172.0.0.0 . tcp . 80 . 0 : 10.0.0.0 . 8080"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, table := oneFake()
			sync(t, b, clusters.NewSized(2, 2).Plan())
			if err := test.tamper(t, table); err != nil {
				t.Fatal(err)
			}
			drifts, err := b.Check(t.Context())
			if err != nil || len(drifts) != 1 {
				t.Fatalf("Check says %v, %v", drifts, err)
			}
			if diff := cmp.Diff(test.want, drifts[0].Details); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if many := firstOf(make([]string, 30)); len(many) != backend.MaxDetails {
		t.Errorf("%d details", len(many))
	}
}

func addChain(f *nft.Fake, name string) *knftables.Transaction {
	tx := f.NewTransaction()
	tx.Add(&knftables.Chain{Name: name})
	return tx
}
