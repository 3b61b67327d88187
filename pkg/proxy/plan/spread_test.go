package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// spreadPool returns a pool of n endpoints, whose weights may be nil, with its slots.
func spreadPool(n int, by cluster.Algorithm, weights []int) *Pool {
	p := &Pool{}
	for i := range n {
		p.Endpoints = append(p.Endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i / 250), byte(1 + i%250)}), 8080))
	}
	if weights != nil {
		p.Spread = &Spread{Weights: weights}
	}
	d := &decision{opts: &Options{Balancing: Balancing{On: true, Slots: TableSlots}}, algorithm: by, fits: true}
	d.spread(p)
	return p
}

// without returns the pool without one endpoint.
func without(p *Pool, gone int) *Pool {
	less := &Pool{Endpoints: slices.Delete(slices.Clone(p.Endpoints), gone, gone+1)}
	if w := p.Spread.Weights; w != nil {
		less.Spread = &Spread{Weights: slices.Delete(slices.Clone(w), gone, gone+1)}
	}
	d := &decision{opts: &Options{Balancing: Balancing{On: true, Slots: TableSlots}}, algorithm: p.By(), fits: true}
	d.spread(less)
	return less
}

// TestSkew sends 100,000 connections by each algorithm: an endpoint's part of them differs from that of its weight by at most 1 % of all.
func TestSkew(t *testing.T) {
	const connections = 100_000
	random := rand.New(rand.NewPCG(1, 2))
	for _, by := range []cluster.Algorithm{cluster.Random, cluster.RoundRobin, cluster.SourceHash, cluster.Maglev} {
		for name, weights := range map[string][]int{
			"2": {1, 1}, "3": {1, 1, 1}, "5": {1, 1, 1, 1, 1}, "10": slices.Repeat([]int{1}, 10), "50": slices.Repeat([]int{1}, 50), "200": slices.Repeat([]int{1}, 200),
			"weights": {100, 50, 25, 1}, "primes": {65521, 32749, 7, 101}, "many": append(slices.Repeat([]int{100}, 40), 1, 900),
		} {
			p := spreadPool(len(weights), by, weights)
			count := map[netip.AddrPort]int{}
			for i := range connections {
				if p.By() == cluster.RoundRobin {
					count[p.Slots()[i%len(p.Slots())]]++
				} else {
					count[p.Picks(random.Uint32())]++
				}
			}
			sum := 0
			for _, w := range weights {
				sum += w
			}
			for i, endpoint := range p.Endpoints {
				share, want := float64(count[endpoint])/connections, float64(weights[i])/float64(sum)
				if math.Abs(share-want) > 0.01 {
					t.Errorf("%s, %s: endpoint %d gets %.2f %%, want %.2f %%", by, name, i, 100*share, 100*want)
				}
			}
		}
	}
}

// TestFewFlowsMove removes each of some endpoints, which is the inverse of adding it: on average 1.1 times as many of the flows move as it had, where
// there are up to 50 endpoints.
func TestFewFlowsMove(t *testing.T) {
	for n, most := range map[int]float64{2: 1.1, 3: 1.1, 5: 1.1, 10: 1.1, 20: 1.1, 50: 1.1, 100: 1.25, 200: 1.4} {
		for _, weights := range [][]int{nil, append(slices.Repeat([]int{100}, n-1), 50)} {
			p := spreadPool(n, cluster.Maglev, weights)
			moved, owned, removed := 0, 0, min(n, 8)
			for gone := range removed {
				less := without(p, gone)
				for slot, endpoint := range p.Slots() {
					if endpoint == p.Endpoints[gone] {
						owned++
					}
					if now := less.Slots(); now[min(slot, len(now)-1)] != endpoint {
						moved++
					}
				}
			}
			share, of := float64(removed)/float64(n), float64(len(p.Slots()))
			t.Logf("%d endpoints: %.3f/N of the slots move, %.3f/N were those of the endpoint", n, float64(moved)/of/share, float64(owned)/of/share)
			if float64(moved) > most*share*of*1.03 && weights == nil || float64(moved) > most*1.1*float64(owned) {
				t.Errorf("%d endpoints: %d slots move, of which %d were those of the endpoint that left", n, moved, owned)
			}
		}
	}
}

// TestTableNeverChanges compares some slots with those of the first version: nodes of another version must make the same choice.
func TestTableNeverChanges(t *testing.T) {
	p := spreadPool(5, cluster.Maglev, []int{1, 2, 3, 4, 5})
	var got []int
	for _, slot := range []int{0, 1, 2, 3, 4, 5, 4000, 4001, 8190, 8191} {
		got = append(got, slices.Index(p.Endpoints, p.Slots()[slot]))
	}
	if want := "[2 0 0 3 4 0 3 3 2 2]"; fmt.Sprint(got) != want {
		t.Errorf("slots have the endpoints %v, want %s", got, want)
	}
}

// BenchmarkTable fills a table.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				spreadPool(n, cluster.Maglev, nil)
			}
		})
	}
}
