package nftables

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

// compared compares a fake table with the plan of a cluster, and returns a line for each difference.
func compared(t *testing.T, table nft.Table, c *clusters.Sized) []string {
	t.Helper()
	found, err := compareTable(t.Context(), table, c.Plan(), cluster.IPv4, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	return laws.Lines(found)
}

// TestCompare compares a table with the plan that it was written from, then with another plan, and then after another program
// changed it.
func TestCompare(t *testing.T) {
	table := nfttest.New(nf.IPv4, TableName)
	b, c := newBackend(testOptions, table), clusters.NewSized(2, 2)
	is := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, compared(t, table, c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	is("without a table", "table ip kube-proxy: The kernel does not have it.")
	mustSync(t, b, c.Plan())
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
	is("after another program changed it", "chain nat-prerouting:", "- accept", "map services:", `+ 172.0.0.0 . tcp . 80 comment "default/service-0" : goto internal-2`)
}

// TestCanonical compares rules as this program writes them with the listings of nft 1.0.6 and 1.1.3.
func TestCanonical(t *testing.T) {
	for ours, listed := range map[string]string{
		"meta mark & 0x4000 == 0x4000 drop":                                 "meta mark & 0x00004000 == 0x00004000 drop",
		"counter name rejected-on-localhost-tcp":                            `counter name "rejected-on-localhost-tcp"`,
		"ct original ip saddr != { 172.18.0.0/16, 192.0.2.0/32 } drop":      "ct original ip saddr != { 172.18.0.0/16, 192.0.2.0 } drop",
		"ct original ip6 saddr != { fd00::/16, fd00:1::/32 } drop":          "ct original ip6 saddr != fd00::/16 drop",
		"ct original ip saddr != { 172.18.0.101/32, 172.18.0.100/32 } drop": "ct original ip saddr != { 172.18.0.100/31 } drop",
		"tcp flags & (fin | syn | rst | ack) == ack counter":                "tcp flags ack / fin,syn,rst,ack counter",
		"ip saddr @sources meta mark set meta mark | 0x00000001":            "ip saddr @sources meta mark set meta mark | 0x00000001",
	} {
		if a, b := canonical(ours), canonical(listed); a != b {
			t.Errorf("%q and %q became %q and %q", ours, listed, a, b)
		}
	}
	for one, other := range map[string]string{
		"meta mark & 0x4000 == 0x1":                 "meta mark & 0x400 == 0x1",
		"ip saddr != 10.1.0.0/16 meta mark set 0x1": "ip saddr != 10.2.0.0/16 meta mark set 0x1",
	} {
		if canonical(one) == canonical(other) {
			t.Errorf("%q and %q are both %q", one, other, canonical(one))
		}
	}
}

// TestDriftDetails checks that a drift names what another program changed.
func TestDriftDetails(t *testing.T) {
	for name, test := range map[string]struct {
		tamper func(*testing.T, *nfttest.Fake) error
		want   []string
	}{
		"a rule":  {func(_ *testing.T, f *nfttest.Fake) error { return f.External().AddRule("nat-prerouting", "accept") }, []string{"chain nat-prerouting was changed"}},
		"a chain": {func(_ *testing.T, f *nfttest.Fake) error { return f.External().Run(addChain(f, "theirs")) }, []string{"chain theirs was added"}},
		"an element": {func(t *testing.T, f *nfttest.Fake) error {
			return f.External().DeleteElement(mapEndpoints, firstKey(t, f, mapEndpoints))
		}, []string{"map endpoints lacked 172.0.0.0 . tcp . 80 . 0 : 10.0.0.0 . 8080"}},
		"another element": {func(t *testing.T, f *nfttest.Fake) error { return replaceEndpoint(f, firstKey(t, f, mapEndpoints)) },
			[]string{"map endpoints had 172.0.0.0 . tcp . 80 . 0 : 192.0.2.1 . 80", "map endpoints lacked 172.0.0.0 . tcp . 80 . 0 : 10.0.0.0 . 8080"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, table := oneFake()
			mustSync(t, b, clusters.NewSized(2, 2).Plan())
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

func addChain(f *nfttest.Fake, name string) *nft.Transaction {
	tx := f.NewTransaction()
	tx.Add(&knftables.Chain{Name: name})
	return tx
}
