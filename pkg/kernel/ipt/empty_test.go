package ipt_test

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
)

// TestEmptyChainsOfFake checks that the digest of a chain without rules is 0.
func TestEmptyChainsOfFake(t *testing.T) {
	emptyChains(t, ipttest.New(ipt.IPv4, ipt.NFT))
}

func emptyChains(t *testing.T, tables ipt.Tables) {
	for _, input := range []string{"*filter\n:A - [0:0]\n:B - [0:0]\n-A B -j RETURN\nCOMMIT\n", "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"} {
		if err := tables.Restore(t.Context(), input); err != nil {
			t.Fatal(err)
		}
		digests := digestsOf(t, tables, "filter")
		_, missing := digests["C"]
		if a, exists := digests["A"]; !exists || a != 0 || digests["B"] == 0 || digests["FORWARD"] != 0 || missing {
			t.Errorf("after %q: %v; want 0 of the empty chains A and FORWARD", input, digests)
		}
	}
}
