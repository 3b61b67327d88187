package nftables

import (
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelCompare compares the kernel's table with the plan that it was written from, and then after nft changed rules: the
// chains and rules that differ are named. All other rules of the installed nft's listing equal those that were written.
func TestKernelCompare(t *testing.T) {
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			netns.Enter(t, "nft")
			table, err := nft.Open(dialectOf(family).number, TableName)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = table.Close() })
			w := clusters.NewRandom(1, 40)
			p := w.Step()
			for range 10 {
				p = w.Step()
			}
			mustSync(t, newBackend(testOptions, table), p)
			compare := func() []string {
				found, err := compareTable(t.Context(), table, p, family, testOptions)
				if err != nil {
					t.Fatal(err)
				}
				return laws.Lines(found)
			}
			if found := compare(); found != nil {
				t.Errorf("with the plan's table: %q", found)
			}
			in := dialectOf(family).ip + " " + TableName
			for _, change := range []string{"insert rule " + in + " nat-prerouting tcp dport 1 accept", "flush chain " + in + " sticky",
				"add rule " + in + " " + chainServices + " return"} {
				if out, err := exec.Command("nft", change).CombinedOutput(); err != nil {
					t.Fatalf("nft %s: %v\n%s", change, err, out)
				}
			}
			want := []string{"chain nat-prerouting:", "- tcp dport 1 accept", "chain services:", "- return", "chain sticky:"}
			for _, rule := range newWriter(newSchema(family, 0, false), p.Node, testOptions).skeleton().chain("sticky").rules {
				want = append(want, "+ "+rule)
			}
			if diff := cmp.Diff(want, compare()); diff != "" {
				t.Errorf("after changes (-want +got):\n%s", diff)
			}
		})
	}
}
