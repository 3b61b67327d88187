package ipt_test

import (
	"maps"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
)

// TestEmptyChainsOfFake counts the rules of chains, some of which are empty.
func TestEmptyChainsOfFake(t *testing.T) {
	emptyChains(t, ipttest.New(ipt.IPv4, ipt.NFT))
}

func emptyChains(t *testing.T, tables ipt.Restorer) {
	for _, input := range []string{"*filter\n:A - [0:0]\n:B - [0:0]\n-A B -j RETURN\nCOMMIT\n", "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"} {
		if err := tables.Restore(t.Context(), input); err != nil {
			t.Fatal(err)
		}
		counts := ruleCounts(t, tables, "filter")
		_, missing := counts["C"]
		if a, exists := counts["A"]; !exists || a != 0 || counts["B"] != 1 || counts["FORWARD"] != 0 || missing {
			t.Errorf("after %q: %v; want 0 of the empty chains A and FORWARD, and 1 of B", input, counts)
		}
	}
	if some := ruleCounts(t, tables, "filter", "B", "NONE"); !maps.Equal(some, map[string]int{"B": 1}) {
		t.Errorf("of the chains B and NONE there are %v", some)
	}
}
