package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// stroll advances a plan with random limits through random changes, and checks that each plan is right by itself, that nothing waits
// without a reason, and that after the last change all of it is included in the end.
func stroll(t *testing.T, c *chance, steps int) {
	t.Helper()
	opts := &Options{NodePorts: NodePortAddresses{Primary: c.yes()}, MasqueradeAll: c.yes(), ServeExternalIPs: c.yes()}
	snap := &cluster.Snapshot{Node: &cluster.Node{Name: thisNode}}
	p := Compute(snap, opts, nil)
	plans := []*Plan{p}
	for range steps {
		for range c.below(3) {
			snap = randomChange(c, snap)
		}
		if c.below(4) == 0 { // an Advance leaves the plan before as it is
			p = pick(c, plans...)
		}
		next := Advance(snap, opts, p, &Limit{Small: c.below(40), Part: c.below(20)})
		checkWaiting(t, snap, next)
		checkFlows(t, p, next)
		p = next
		plans = append(plans, p)
	}
	for turns := 0; len(p.waiting) > 0; turns++ {
		if turns > 2000 {
			t.Fatalf("%d Services wait for ever", len(p.waiting))
		}
		next := Advance(snap, opts, p, &Limit{Part: 1 + c.below(3)})
		checkWaiting(t, snap, next)
		checkFlows(t, p, next)
		p = next
	}
	if diff := differs(contentsOf(Compute(snap, opts, nil)), contentsOf(p)); diff != "" {
		t.Fatalf("the result differs from that without a limit (-without +with):\n%s", diff)
	}
	if p.Snapshot() != snap {
		t.Fatal("nothing waits, but the plan implements another snapshot")
	}
}

// checkWaiting checks the invariants of a plan that may include only part of a snapshot.
func checkWaiting(t *testing.T, snap *cluster.Snapshot, p *Plan) {
	t.Helper()
	if diff := differs(expected(p), contentsOf(p)); diff != "" {
		t.Fatalf("the plan does not follow from its Services (-want +got):\n%s", diff)
	}
	checkRoutes(t, p)
	var waits []cluster.ServiceName
	for name := range p.Waiting() {
		waits = append(waits, name)
	}
	for frontend, claims := range p.Contested.All() {
		served := claims.Served()
		if newest, _ := snap.Services.Get(served.Service); slices.Contains(waits, served.Service) && (newest == nil || !offers(newest, frontend)) {
			t.Fatalf("%s is still served for %s, which does not have it any more, and others do", frontend, served.Name)
		}
	}
	for name := range cluster.Changes(p.Snapshot().Services, snap.Services) {
		if !slices.Contains(waits, name) {
			t.Fatalf("%s is not included, and does not wait", name)
		}
	}
	sorted := slices.IsSortedFunc(p.waiting, waiting.compare)
	slices.SortFunc(waits, cluster.ServiceName.Compare)
	if !sorted || len(slices.Compact(waits)) != len(p.waiting) {
		t.Fatalf("those that wait are not in order, or not distinct: %v", p.waiting)
	}
	for name := range p.Services.All() {
		for range p.Problems(name, nil) { // must not panic
			break
		}
	}
}

// TestAdvance walks through random changes.
func TestAdvance(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { stroll(t, newChance(t, rand.New(rand.NewPCG(seed, 5)).IntN), 20) })
	}
}

// monster returns a Service with ports of one protocol and endpoints of each.
func monster(namespace, name string, ports, endpoints int, protocol cluster.Protocol) *cluster.Service {
	s := &cluster.Service{Name: cluster.ServiceName{Namespace: namespace, Name: name},
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{172, 31, byte(len(namespace)), name[len(name)-1]})}}
	slice := manyEndpoints(0, endpoints)
	slice.Ports = nil
	for i := range ports {
		port := fmt.Sprintf("p%04d", i)
		s.Ports = append(s.Ports, cluster.ServicePort{Name: port, Protocol: protocol, Port: uint16(1 + i)})
		slice.Ports = append(slice.Ports, cluster.EndpointPort{Name: port, Protocol: protocol, Port: uint16(1 + i)})
	}
	s.Slices = []*cluster.EndpointSlice{slice}
	return s
}

// with returns a snapshot with other versions of Services.
func with(snap *cluster.Snapshot, services ...*cluster.Service) *cluster.Snapshot {
	next := *snap
	for _, s := range services {
		next.Services = next.Services.Set(s.Name, s)
	}
	return &next
}

// written returns how many elements the step from one plan to the next writes.
func written(before, after *Plan) (n int) {
	for _, change := range cluster.Changes(before.Frontends, after.Frontends) {
		n += routeSize(change.Before, change.After)
	}
	return n
}

// TestSmallChangesDoNotWait lets ten Services of one namespace change completely all the time. Another one's change is included at
// once, no step writes more than its limit, and a large change of another namespace is complete after a few turns.
func TestSmallChangesDoNotWait(t *testing.T) {
	limit := &Limit{Small: 100, Part: 500} // each port has 201 elements
	versions := func(protocol cluster.Protocol) (all []*cluster.Service) {
		for i := range 10 {
			all = append(all, monster("tenant", fmt.Sprint("m", i), 20, 200, protocol))
		}
		return all
	}
	opts := &Options{}
	snap := with(&cluster.Snapshot{Node: &cluster.Node{Name: thisNode}}, versions(cluster.TCP)...)
	snap = with(snap, monster("other", "s0", 1, 2, cluster.TCP), monster("other", "l1", 2, 1000, cluster.TCP))
	p := Compute(snap, opts, nil)
	large := monster("other", "l1", 2, 1000, cluster.UDP)
	snap = with(snap, large)
	protocols := []cluster.Protocol{cluster.UDP, cluster.TCP}
	for turn := range 60 {
		small := monster("other", "s0", 1, 1+turn%2, cluster.TCP)
		snap = with(with(snap, versions(protocols[turn%2])...), small)
		next := Advance(snap, opts, p, limit)
		if got, _ := next.Snapshot().Services.Get(small.Name); got != small {
			t.Fatalf("turn %d: the small change waits", turn)
		}
		if n := written(p, next); n > limit.Small+2*limit.Part {
			t.Fatalf("turn %d: %d elements are written", turn, n)
		}
		if got, _ := next.Snapshot().Services.Get(large.Name); turn == 30 && got != large {
			t.Fatal("the large change of the other namespace is not complete after 30 turns, of which half are its own")
		}
		p = next
	}
}

// TestSmallChangesOfManyNamespaces lets one namespace change more than is small. That delays its own changes only.
func TestSmallChangesOfManyNamespaces(t *testing.T) {
	opts, snap := &Options{}, &cluster.Snapshot{Node: &cluster.Node{Name: thisNode}}
	version := func(endpoints int) *cluster.Snapshot {
		next := snap
		for i := range 100 {
			next = with(next, monster("tenant", fmt.Sprint("t", i), 1, endpoints, cluster.TCP), monster(fmt.Sprint("ns", i), "s0", 1, endpoints, cluster.TCP))
		}
		return next
	}
	last := version(3)
	p := Advance(last, opts, Compute(version(2), opts, nil), &Limit{Small: 100})
	waits := 0
	for name := range p.Waiting() {
		if waits++; name.Namespace != "tenant" {
			t.Errorf("%s waits", name)
		}
	}
	if waits == 0 || waits == 100 {
		t.Errorf("%d of the tenant's changes wait", waits)
	}
}

// TestLacks checks that newer versions of what waits are not missing, and everything else is.
func TestLacks(t *testing.T) {
	node, opts := &cluster.Node{Name: thisNode}, &Options{}
	small, large := monster("ns", "s0", 1, 2, cluster.TCP), monster("ns", "l1", 100, 100, cluster.TCP)
	first := with(&cluster.Snapshot{Node: node}, small, large)
	second := with(first, monster("ns", "l1", 100, 100, cluster.UDP))
	p := Advance(second, opts, Compute(first, opts, nil), &Limit{Small: 100})
	for name, test := range map[string]struct {
		snap  *cluster.Snapshot
		lacks bool
	}{
		"what waits":      {second, false},
		"a newer version": {with(first, monster("ns", "l1", 99, 99, cluster.UDP)), false},
		"its deletion":    {&cluster.Snapshot{Services: second.Services.Delete(large.Name), Node: node}, false},
		"another Service": {with(second, monster("ns", "s0", 1, 3, cluster.TCP)), true},
		"another node":    {&cluster.Snapshot{Services: second.Services, Node: &cluster.Node{Name: thisNode, Zone: "a"}}, true},
		"another range":   {&cluster.Snapshot{Services: second.Services, Node: node, ServiceCIDRs: prefixes("172.31.0.0/16")}, true},
		"a Service's end": {&cluster.Snapshot{Services: second.Services.Delete(small.Name), Node: node}, true},
	} {
		if got := p.Lacks(test.snap); got != test.lacks {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestOneLargePool checks that the endpoints of a single frontend come in parts.
func TestOneLargePool(t *testing.T) {
	opts, limit := &Options{}, &Limit{Small: 100, Part: 5000}
	snap := with(&cluster.Snapshot{Node: &cluster.Node{Name: thisNode}}, monster("ns", "a", 1, 20_000, cluster.TCP))
	p := Compute(snap, opts, nil)
	changed := *monster("ns", "a", 1, 20_000, cluster.TCP)
	other := manyEndpoints(1<<20, 18_000)
	other.Ports = changed.Slices[0].Ports
	changed.Slices = []*cluster.EndpointSlice{other}
	gone := snap.Services.Delete(changed.Name)
	for _, to := range []*cluster.Snapshot{with(snap, &changed), {Services: gone, Node: snap.Node}, with(snap, &changed)} {
		var sizes []string
		for len(sizes) == 0 || len(p.waiting) > 0 {
			next := Advance(to, opts, p, limit)
			if n := written(p, next); n > limit.Part+1 {
				t.Fatalf("%d elements are written", n)
			}
			size := 0
			for route := range next.Frontends.Values() {
				size = len(route.Pool.Endpoints)
			}
			sizes, p = append(sizes, fmt.Sprint(size)), next
		}
		t.Log("endpoints:", strings.Join(sizes, " "))
	}
}
