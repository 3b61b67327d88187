package ipt

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelFeatures checks that every feature works on this kernel, in each variant that it has.
func TestKernelFeatures(t *testing.T) {
	netns.Enter(t, "iptables-nft", "ip6tables-nft")
	for _, variant := range []Variant{NFT, Legacy} {
		for _, family := range []Family{IPv4, IPv6} {
			tables, err := Open(t.Context(), family, variant)
			if err != nil {
				t.Logf("%s, %s is not on this machine: %v", variant, family, err)
				continue
			}
			for _, f := range Probe(t.Context(), tables) {
				if f.Err != nil {
					t.Errorf("%s, %s: %s (%s): %v", variant, family, f.Name, f.Module, f.Err)
				}
			}
			if err := tables.Close(); err != nil {
				t.Error(err)
			}
			if version, err := Version(t.Context(), family, variant); err != nil || version == "" {
				t.Errorf("%s, %s: version %q, %v", variant, family, version, err)
			}
		}
	}
}
