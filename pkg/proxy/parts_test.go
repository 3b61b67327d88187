package proxy

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// wide returns a snapshot with one Service of that many ports, in one of two versions.
func wide(ports, version int) *cluster.Snapshot {
	s := &cluster.Service{Name: cluster.ServiceName{Namespace: "tenant", Name: "wide"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	for i := range ports {
		s.Ports = append(s.Ports, cluster.ServicePort{Protocol: cluster.TCP, Port: uint16(1 + i + version%2*ports)})
	}
	return &cluster.Snapshot{Services: cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(s.Name, s), Node: &cluster.Node{}}
}

// TestPartsStayInBudget lets a Service change all the time, whose every part costs some time, beside other syncs. In no minute do the
// parts use more than a quarter of a core; the size of a part follows from its time; and what takes long is reported.
func TestPartsStayInBudget(t *testing.T) {
	const aim, ports = 20 * time.Millisecond, 3000
	for _, element := range []time.Duration{10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond} {
		random := rand.New(rand.NewPCG(uint64(element), 1))
		p, opts := parts{time: aim}, &plan.Options{}
		versions := []*cluster.Snapshot{wide(ports, 0), wide(ports, 1)}
		now, before, delayed := noon, plan.Compute(versions[0], opts, nil), false
		var took []*Sync
		for version := 0; now.Before(noon.Add(80 * time.Second)); {
			if before.Waits() == 0 {
				version++
			}
			snap := versions[version%2]
			limit := p.limit(now, before, snap)
			s := &Sync{Started: now, Plan: plan.Advance(snap, opts, before, limit)}
			size := 0
			for range cluster.Changes(before.Frontends, s.Plan.Frontends) {
				size++
			}
			s.Cost = time.Duration(size) * element
			s.Finished = now.Add(s.Cost)
			if p.record(s, limit, before); p.included {
				took = append(took, s)
				if len(took) > 10 && s.Cost > max(2*aim, 2*minPart*element) {
					t.Fatalf("%v an element: a part of %d elements took %v", element, size, s.Cost)
				}
			} else if size > limit.Small {
				t.Fatalf("%v an element: %d elements without a turn", element, size)
			}
			delayed = delayed || len(s.Delayed) > 0
			before, now = s.Plan, s.Finished.Add(min(p.again(s), time.Duration(random.IntN(200))*time.Millisecond))
		}
		var sum time.Duration
		first := 0
		for _, s := range took {
			for sum += s.Cost; s.Started.Sub(took[first].Started) > time.Minute; first++ {
				sum -= took[first].Cost
			}
			if sum > time.Minute/4 {
				t.Fatalf("%v an element: parts use %v in the minute until %v", element, sum, s.Finished)
			}
		}
		if slow := ports*2*element > delayedAfter; delayed != slow {
			t.Errorf("%v an element: delayed %v", element, delayed)
		}
	}
}
