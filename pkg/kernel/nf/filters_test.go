package nf_test

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf/nftest"
)

// TestFilterChains reads the chains of a fake nf_tables: only base chains of type filter count, and only of those that drop the rules.
func TestFilterChains(t *testing.T) {
	kernel := nftest.New()
	conn := nf.New(kernel.Open("filters", 1))
	for _, family := range []nf.Family{nf.Inet, nf.IPv4} {
		kernel.AddTable(nf.TableName{Family: family, Name: "theirs"})
		b := nf.NewBatch(family, "theirs", 0)
		b.AddChain(nf.Chain{Name: "forward", Type: "filter", Hook: unix.NF_INET_FORWARD, Drops: family == nf.Inet})
		b.AddChain(nf.Chain{Name: "nat", Type: "nat", Hook: unix.NF_INET_PRE_ROUTING, Priority: -100})
		b.AddChain(nf.Chain{Name: "other"})
		for range 2 {
			b.AddRule("forward", nf.AppendImmediate(nil, nf.Jump, "other"), 0)
		}
		if err := conn.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	chains, err := conn.FilterChains()
	want := []nf.FilterChain{{"ip", "theirs", "forward", "forward", false, 0}, {"inet", "theirs", "forward", "forward", true, 2}}
	if diff := gocmp.Diff(want, chains); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
