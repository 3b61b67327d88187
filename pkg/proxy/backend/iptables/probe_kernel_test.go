package iptables

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelFeatures checks that every feature works on this kernel, in each variant that it has.
func TestKernelFeatures(t *testing.T) {
	netns.Enter(t, "iptables-nft", "ip6tables-nft")
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			if version, err := ipt.Version(t.Context(), doorFamily(family), variant); err != nil || version == "" {
				t.Logf("%s, %s is not on this machine: %q, %v", variant, family, version, err)
				continue
			}
			found, err := Mode{}.Features(t.Context(), string(variant), family)
			if err != nil || len(found) < 5 {
				t.Errorf("%s, %s: %v, %v", variant, family, found, err)
			}
			if err := tryFence(t.Context(), variant, family); err != nil {
				t.Errorf("%s, %s: %v", variant, family, err)
			}
			for _, f := range found {
				if f.Err != nil {
					t.Errorf("%s, %s: %s (%s): %v", variant, family, f.Name, f.Module, f.Err)
				}
			}
		}
	}
}
