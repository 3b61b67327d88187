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

// spreadPlan returns the plan of a Service with UDP port 53 and endpoints of the given weights on this node, under policy Local for external addresses.
func spreadPlan(of *cluster.Service, options *Options, weights ...uint16) (*Plan, *Service) {
	slice := &cluster.EndpointSlice{Name: "a", Ports: []cluster.EndpointPort{{Protocol: cluster.UDP, Port: 5353}}}
	for i, weight := range weights {
		slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}),
			Conditions: cluster.Ready | cluster.Local, Weight: cluster.WeightOf(weight)})
	}
	of.Name = cluster.ServiceName{Namespace: "default", Name: "dns"}
	of.ClusterIPs, of.HealthCheckNodePort, of.ExternalPolicy = []netip.Addr{netip.MustParseAddr("10.96.0.10")}, 32000, cluster.PolicyLocal
	of.Ports, of.Slices = []cluster.ServicePort{{Protocol: cluster.UDP, Port: 53}}, []*cluster.EndpointSlice{slice}
	services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()
	services.Set(of.Name, of)
	p := Compute(&cluster.Snapshot{Services: services.Map(), Node: &cluster.Node{}}, options, nil)
	decided, _ := p.Services.Get(of.Name)
	return p, decided
}

// TestWeightZeroDrains: an endpoint with weight 0 keeps its UDP flows, and gets no new ones; health checks do not count it.
func TestWeightZeroDrains(t *testing.T) {
	_, s := spreadPlan(&cluster.Service{}, &Options{Balancing: Balancing{On: true}}, 0, 10)
	if n := len(s.Routes[0].Pool.Endpoints); n != 1 || len(s.ServingOn("", cluster.IPv4).Endpoints) != 2 || s.HealthCheck.LocalEndpoints[cluster.IPv4] != 1 {
		t.Errorf("%d endpoints get new flows, want 1; %d keep theirs, want 2; health check: %+v, want 1", n, len(s.ServingOn("", cluster.IPv4).Endpoints), s.HealthCheck)
	}
	p, s := spreadPlan(&cluster.Service{}, &Options{Balancing: Balancing{On: true}}, 0, 0)
	if s.Routes[0].Verdict != Reject || len(p.Problems(s.Name, nil)) != 1 || s.HealthCheck.LocalEndpoints[cluster.IPv4] != 0 {
		t.Errorf("without any weight: %s, %v, health check %+v", s.Routes[0].Verdict, p.Problems(s.Name, nil), s.HealthCheck)
	}
}

// TestGateOffIgnoresBalancing: without Balancing.On, neither weights nor algorithms nor invalid values change a plan.
func TestGateOffIgnoresBalancing(t *testing.T) {
	p, s := spreadPlan(&cluster.Service{Algorithm: cluster.Maglev, Ignored: "bad"}, &Options{}, 0, 10)
	if pool := s.Routes[0].Pool; len(pool.Endpoints) != 2 || pool.Spread != nil || len(p.Problems(s.Name, nil)) > 0 {
		t.Errorf("pool %+v, problems %v", pool, p.Problems(s.Name, nil))
	}
}

// TestTooManySlots: a Service whose tables would be too many, or take too long to fill, is balanced at random, and says so.
func TestTooManySlots(t *testing.T) {
	for name, c := range map[string]struct {
		limit, endpoints int
		by               cluster.Algorithm
	}{
		"elements": {limit: 10_000, endpoints: 2, by: cluster.Maglev},
		"draws":    {endpoints: 2000, by: cluster.SourceHash},
	} {
		options := &Options{Balancing: Balancing{On: true, Slots: TableSlots}, Limits: Limits{Elements: c.limit}}
		p, s := spreadPlan(&cluster.Service{Algorithm: c.by}, options, slices.Repeat([]uint16{100}, c.endpoints)...)
		if pool := s.Routes[0].Pool; pool.Spread != nil || len(pool.Endpoints) != c.endpoints || !Reasons(p.Problems(s.Name, nil))[ProblemBalancing] {
			t.Errorf("%s: %d endpoints, %v, problems %v", name, len(pool.Endpoints), pool.By(), p.Problems(s.Name, nil))
		}
	}
}
