package nftables

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestAssign orders random pools, in which some endpoints are more than once: no endpoint is lost, those that can keep their slot do, and
// the others fill the gaps in the plan's order.
func TestAssign(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() (pool []netip.AddrPort) {
		for range random.IntN(12) {
			pool = append(pool, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(6))}), 80))
		}
		return pool
	}
	for range 10_000 {
		have, pool := draw(), draw()
		if random.IntN(2) == 0 {
			slices.SortFunc(pool, netip.AddrPort.Compare)
		}
		got := assign(have, pool)
		left := map[netip.AddrPort]int{}
		for _, endpoint := range pool {
			left[endpoint]++
		}
		var moved []netip.AddrPort
		for slot, endpoint := range got {
			if slot >= len(have) || have[slot] != endpoint {
				moved = append(moved, endpoint)
			}
			if left[endpoint]--; left[endpoint] < 0 {
				t.Fatalf("%v, %v: %v has %v too often", have, pool, got, endpoint)
			}
		}
		for slot, endpoint := range got {
			if slot < len(have) && have[slot] != endpoint && slices.Contains(moved, have[slot]) {
				t.Fatalf("%v, %v: %v moves %v from slot %d", have, pool, got, have[slot], slot)
			}
		}
		if len(got) != len(pool) || len(have) > 0 && !slices.Equal(have, pool) && !slices.IsSortedFunc(moved, netip.AddrPort.Compare) {
			t.Fatalf("%v, %v: %v", have, pool, got)
		}
	}
}
