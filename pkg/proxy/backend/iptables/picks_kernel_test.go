package iptables_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestKernelPicksAreUniform makes 100,000 picks from each pool, counted by the rules.
func TestKernelPicksAreUniform(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		p := backendtest.NewPicks(t, 0, opener(variant))
		drawn := func() map[netip.AddrPort]uint64 {
			out, err := p.Lab.Node1.Command("iptables-"+string(variant)+"-save", "-c", "-t", "nat").Output()
			if err != nil {
				t.Fatal(err)
			}
			counts := map[netip.AddrPort]uint64{}
			for line := range strings.Lines(string(out)) {
				rule, to, found := strings.Cut(strings.TrimSpace(line), " -j DNAT --to-destination ")
				if !found {
					continue
				}
				var packets uint64
				if _, err := fmt.Sscanf(rule, "[%d:", &packets); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				counts[netip.MustParseAddrPort(to)] = packets
			}
			return counts
		}
		p.Uniform(100_000, drawn)
		p.Balanced(100_000, drawn, cluster.Random, cluster.RoundRobin)
	})
}

// TestKernelPicksAmidChanges rewrites the chain while packets are in it.
func TestKernelPicksAmidChanges(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) { backendtest.NewPicks(t, 0, opener(variant)).AmidChanges() })
}
