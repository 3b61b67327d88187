package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
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

// TestDelayIsReportedAtOnce lets a part cost so much that the next one has to rest for minutes, in which there may be no other sync: users
// are notified at the beginning of the rest.
func TestDelayIsReportedAtOnce(t *testing.T) {
	opts := &plan.Options{}
	before := plan.Compute(wide(20_000, 0), opts, nil)
	for _, takes := range []time.Duration{time.Second, 2 * time.Second} {
		p, snap := parts{time: 200 * time.Millisecond}, wide(20_000, 1)
		limit := p.limit(noon, before, snap)
		s := &Sync{Started: noon, Finished: noon.Add(takes), Cost: takes, Plan: plan.Advance(snap, opts, before, limit)}
		p.record(s, limit, before)
		if again, delayed := p.again(s), len(s.Delayed) > 0; delayed != (again > delayedAfter) {
			t.Errorf("the next part is in %v after one of %v, and the change counts as delayed: %v", again, takes, delayed)
		}
	}
}

// table is a backend whose syncs cost something for the whole table, and for each element that changes.
type table struct {
	*fakeBackend
	base, element time.Duration
	last          *plan.Plan
	inForce       atomic.Pointer[plan.Plan]
}

func (b *table) Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []backend.Result {
	size := 0
	for _, change := range cluster.Changes(b.last.Frontends, p.Frontends) {
		for _, route := range []*plan.Route{change.Before, change.After} {
			if route != nil {
				size += 1 + len(route.Pool.Endpoints)
			}
		}
	}
	b.last = p
	b.set(func(f *fakeBackend) {
		f.takes = min(1, time.Duration(size))*b.base + time.Duration(size)*b.element
		f.costs, f.result.Rules = f.takes, size
	})
	defer b.inForce.Store(p)
	return b.fakeBackend.Sync(ctx, p, families...)
}

// service writes a Service with that many ports, whose numbers follow from the version, and endpoints in its first version.
func (r *run) service(name cluster.ServiceName, addr string, ports, endpoints, version int) {
	meta := metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: addr, ClusterIPs: []string{addr}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: name.Name}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	for i := range ports {
		port := fmt.Sprint("p", i)
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: port, Protocol: corev1.ProtocolTCP, Port: int32(1 + i + version%2*ports)})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port, Protocol: new(corev1.ProtocolTCP), Port: new(int32(1 + i))})
	}
	change := func(u *cluster.Update) { u.SetService(service) }
	if version == 0 {
		for i := range endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)}, NodeName: new("elsewhere")})
		}
		change = func(u *cluster.Update) { u.SetService(service); u.SetEndpointSlice(slice) }
	}
	if err := r.Builder.Update(change); err != nil {
		r.t.Fatal(err)
	}
}

// TestBusyTenant has ten Services of 25,000 elements change completely all the time, with the costs of syncs that were measured in each
// mode (docs/decisions/measurements.md). 99 of 100 changes of another Service, which are not more frequent than its syncs may be, are
// in force within a second, 0.1 s in nftables mode; and all syncs together use at most a quarter of a core in every minute.
func TestBusyTenant(t *testing.T) {
	for _, mode := range []struct {
		name              string
		base, part        time.Duration
		p99, pause, lasts time.Duration
	}{
		{"nftables", 3 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Minute},
		{"iptables nft", 180 * time.Millisecond, 200 * time.Millisecond, time.Second, 4 * time.Second, 10 * time.Minute},
		{"iptables legacy", 750 * time.Millisecond, 200 * time.Millisecond, time.Second, 6 * time.Second, 4 * time.Hour},
	} {
		t.Run(mode.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := prepare(t)
				b := &table{fakeBackend: r.backend, base: mode.base, element: 4 * time.Microsecond, last: &plan.Plan{}}
				r.PartTime, r.Backend = mode.part, b
				times := r.beside(b, mode.pause, mode.lasts)
				p99, most := times[len(times)*99/100], r.busiestMinute()
				t.Logf("%d changes: %v at p50, %v at p99, %v at most; %v in a minute at most", len(times), times[len(times)/2], p99, times[len(times)-1], most)
				if p99 > mode.p99 {
					t.Errorf("%v at p99, want %v", p99, mode.p99)
				}
				if most > time.Minute/4 {
					t.Errorf("syncs use %v in a minute", most)
				}
			})
		})
	}
}

// beside changes a Service for some time, with pauses, beside a busy tenant. It returns how long each change took until it was in force,
// sorted.
func (r *run) beside(b *table, pause, lasts time.Duration) (times []time.Duration) {
	random := rand.New(rand.NewPCG(uint64(b.base), 1))
	change := func(version int) {
		r.service(cluster.ServiceName{Namespace: "victim", Name: "web"}, "172.30.1.1", 1, 1, version)
	}
	flip := func(version int) {
		for n := range 10 {
			r.service(cluster.ServiceName{Namespace: "tenant", Name: fmt.Sprint("monster-", n)}, fmt.Sprint("172.30.0.", 1+n), 25, 1000, version)
		}
	}
	change(0)
	flip(0)
	close(r.sources[0].complete)
	r.start()
	for b.inForce.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	for version := 1; time.Since(r.began) < lasts; version++ {
		flip(version)
		time.Sleep(pause/2 + time.Duration(random.Int64N(int64(pause))))
		began := time.Now()
		change(version)
		frontend := plan.Frontend{Addr: netip.MustParseAddr("172.30.1.1"), Protocol: cluster.TCP, Port: uint16(1 + version%2)}
		for ok := false; !ok; _, ok = b.inForce.Load().Frontends.Get(frontend) {
			time.Sleep(time.Millisecond)
		}
		times = append(times, time.Since(began))
	}
	r.end()
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
	slices.Sort(times)
	return times
}

// busiestMinute returns the processor time of the syncs in the minute with most, without the first sync.
func (r *run) busiestMinute() (most time.Duration) {
	var sum time.Duration
	rest := r.observer.synced[1:]
	for _, s := range rest {
		for sum += s.Cost; s.Started.Sub(rest[0].Started) > time.Minute; rest = rest[1:] {
			sum -= rest[0].Cost
		}
		most = max(most, sum)
	}
	return most
}
