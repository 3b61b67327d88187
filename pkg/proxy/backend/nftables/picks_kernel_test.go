package nftables

import (
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

func newPicks(t *testing.T) *backendtest.Picks {
	return backendtest.NewPicks(t, 512, openBoth)
}

// TestKernelPicksAreUniform makes 100,000 picks from each pool, and ten times as many with THOROUGH=1.
func TestKernelPicksAreUniform(t *testing.T) {
	t.Parallel()
	p := newPicks(t)
	drawn := func() map[netip.AddrPort]uint64 {
		counts := map[netip.AddrPort]uint64{}
		f := p.Backend.(*Backend).families[0]
		for raw, err := range f.table.Elements(t.Context(), mapEndpoints) {
			if err != nil {
				t.Fatal(err)
			}
			e, err := f.schema.named(mapEndpoints).decode(&raw, new(buffer))
			if err != nil {
				t.Fatal(err)
			}
			counts[e.endpoint()] += raw.Packets
		}
		return counts
	}
	p.Uniform(laws.Thorough(100_000, 1_000_000), drawn)
	p.Balanced(100_000, drawn, cluster.Random, cluster.RoundRobin, cluster.SourceHash, cluster.Maglev)
}

// TestKernelPicksAmidChanges also adds and removes the chains for each number of slots.
func TestKernelPicksAmidChanges(t *testing.T) {
	t.Parallel()
	newPicks(t).AmidChanges()
}
