package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// contents holds everything in a plan, in Go maps.
type contents struct {
	Services   map[cluster.ServiceName]*Service
	Frontends  map[Frontend]*Route
	Contested  map[Frontend][]*Route
	ClusterIPs map[netip.Addr]int
	Hairpins   map[netip.Addr]int
	LocalPods  map[netip.Addr]int
	Node       *Node
}

func contentsOf(p *Plan) contents {
	c := contents{Contested: map[Frontend][]*Route{}, Node: p.Node}
	c.Services, c.Frontends = maps.Collect(p.Services.All()), maps.Collect(p.Frontends.All())
	c.ClusterIPs, c.Hairpins = maps.Collect(p.ClusterIPs.All()), maps.Collect(p.Hairpins.All())
	c.LocalPods = maps.Collect(p.LocalPods.All())
	for frontend, claims := range p.Contested.All() {
		c.Contested[frontend] = slices.Collect(claims.Routes.Values())
	}
	return c
}

// expected derives the rest of a plan from its Services, in the simplest way.
func expected(p *Plan) contents {
	want := contents{
		Services: maps.Collect(p.Services.All()), Frontends: map[Frontend]*Route{}, Contested: map[Frontend][]*Route{},
		ClusterIPs: map[netip.Addr]int{}, Hairpins: map[netip.Addr]int{}, LocalPods: map[netip.Addr]int{}, Node: p.Node,
	}
	age := func(r *Route) int64 { return want.Services[r.Service].Created }
	rank := map[Kind]int{ClusterIP: 1, LoadBalancerIP: 2, ExternalIP: 3, NodePort: 3}
	claims := map[Frontend][]*Route{}
	for _, service := range p.Services.All() {
		for _, route := range service.Routes {
			claims[route.Frontend] = append(claims[route.Frontend], route)
		}
		for _, addr := range service.ClusterIPs {
			want.ClusterIPs[addr]++
		}
		for _, addr := range service.HairpinAddrs() {
			want.Hairpins[addr]++
		}
		for _, addr := range service.localPods() {
			want.LocalPods[addr]++
		}
	}
	for frontend, routes := range claims {
		slices.SortStableFunc(routes, func(a, b *Route) int { return cmp.Compare(age(a), age(b)) }) // already sorted by name
		slices.SortStableFunc(routes, func(a, b *Route) int { return rank[a.Kind] - rank[b.Kind] })
		want.Frontends[frontend] = routes[0]
		if len(routes) > 1 {
			want.Contested[frontend] = routes
		}
	}
	return want
}

func differs(want, got contents) string {
	return gocmp.Diff(want, got, gocmp.AllowUnexported(Service{}, rareLists{}), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}))
}

// chance is a source of random decisions.
type chance struct {
	// below returns a number in [0, n), n > 0.
	below func(n int) int
	// zones are hints for zones; only a Builder can make them.
	zones []cluster.Zones
}

func newChance(t *testing.T, below func(n int) int) *chance {
	t.Helper()
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service())
		u.SetEndpointSlice(slice("s", "10.2.0.1", "10.2.0.2 zone=a", "10.2.0.3 zone=a/b", "10.2.0.4 zone=b"))
	})
	c := &chance{below: below}
	for s := range w.builder.Snapshot().Services.Values() {
		for _, e := range s.Slices[0].Endpoints {
			c.zones = append(c.zones, e.Zones)
		}
	}
	return c
}

func (c *chance) yes() bool { return c.below(2) == 1 }

func pick[T any](c *chance, from ...T) T { return from[c.below(len(from))] }

// some returns up to limit distinct values.
func some[T comparable](c *chance, limit int, from ...T) []T {
	var picked []T
	for range c.below(limit + 1) {
		if value := pick(c, from...); !slices.Contains(picked, value) {
			picked = append(picked, value)
		}
	}
	return picked
}

// randomService returns a Service with values from small sets, so that Services conflict often.
func randomService(c *chance, name cluster.ServiceName) *cluster.Service {
	s := &cluster.Service{
		Name:           name,
		Created:        int64(c.below(3)),
		ClusterIPs:     append(some(c, 1, addrs("172.30.0.1", "172.30.0.2")...), some(c, 1, addrs("fd00:30::1", "fd00:30::2")...)...),
		InternalPolicy: pick(c, cluster.PolicyCluster, cluster.PolicyLocal),
		ExternalPolicy: pick(c, cluster.PolicyCluster, cluster.PolicyLocal),
		Affinity:       pick(c, 0, time.Second),
	}
	if c.below(4) > 0 {
		s.External = &cluster.External{
			LoadBalancerIPs: some(c, 2, addrs("198.51.100.1", "198.51.100.2", "2001:db8::1")...),
			ExternalIPs:     some(c, 2, addrs("198.51.100.1", "172.30.0.1", "0.0.0.0")...),
			SourceRanges:    some(c, 2, prefixes("192.168.0.0/24", "203.0.113.0/24", "2001:db8::/32")...),
		}
	}
	s.HealthCheckNodePort = uint16(c.below(2) * 31000)
	for i := range c.below(3) {
		s.Ports = append(s.Ports, cluster.ServicePort{
			Name: pick(c, "", "http"), Protocol: pick(c, cluster.TCP, cluster.UDP), Port: uint16(80 + i), NodePort: uint16(30000 + c.below(3)),
		})
		if s.Ports[i].NodePort == 30000 {
			s.Ports[i].NodePort = 0
		}
	}
	for i := range c.below(3) {
		s.Slices = append(s.Slices, randomSlice(c, fmt.Sprint(i)))
	}
	return s
}

// randomSlice returns a slice with random values. Half of the slices have usual ones, so that pools often change, and nothing else.
func randomSlice(c *chance, name string) *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{Name: name}
	usual := c.yes()
	if usual {
		s.Ports = []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 8080}, {Name: "http", Protocol: cluster.TCP, Port: 8080}}
	}
	for range c.below(3) {
		s.Ports = append(s.Ports, cluster.EndpointPort{Name: pick(c, "", "http"), Protocol: pick(c, cluster.TCP, cluster.UDP), Port: uint16(8080 + c.below(2))})
	}
	slices.SortStableFunc(s.Ports, func(a, b cluster.EndpointPort) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), int(a.Protocol)-int(b.Protocol))
	})
	pool := addrs("10.1.0.1", "10.1.0.2", "10.2.0.1")
	if c.yes() {
		pool = addrs("fd00:1::1", "fd00:1::2", "fd00:2::1")
	}
	for range c.below(4) {
		e := cluster.Endpoint{Addr: pick(c, pool...), Conditions: cluster.Conditions(c.below(128)), Zones: pick(c, c.zones...)}
		if usual {
			e.Conditions |= cluster.Ready | cluster.Serving
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// randomChange returns a snapshot with one change.
func randomChange(c *chance, s *cluster.Snapshot) *cluster.Snapshot {
	next := *s
	name := cluster.ServiceName{Namespace: "ns", Name: pick(c, "a", "b", "c", "d")}
	old, known := s.Services.Get(name)
	switch c.below(10) {
	case 0:
		node := *s.Node
		node.Zone = pick(c, "", "a")
		node.Addresses = some(c, 2, addrs("192.168.0.1", "192.168.0.2", "fd00:9::1")...)
		next.Node = &node
	case 1:
		node := *s.Node
		node.Interfaces = some(c, 2, addrs("192.168.0.1", "127.0.0.1", "fd00:9::1")...)
		slices.SortFunc(node.Interfaces, netip.Addr.Compare) // as a Builder does
		node.PodCIDRs = some(c, 1, prefixes("10.1.0.0/24")...)
		next.Node = &node
	case 2:
		next.ServiceCIDRs = some(c, 2, prefixes("172.30.0.0/16", "fd00:30::/108")...)
	case 3, 4:
		next.Services = s.Services.Delete(name)
	case 5, 6:
		if known && len(old.Slices) > 0 { // the most common change: one slice, the rest is shared
			changed := *old
			at := c.below(len(old.Slices))
			changed.Slices = slices.Clone(old.Slices)
			changed.Slices[at] = randomSlice(c, changed.Slices[at].Name)
			next.Services = s.Services.Set(name, &changed)
			break
		}
		fallthrough
	default:
		next.Services = s.Services.Set(name, randomService(c, name))
	}
	return &next
}

// walk computes plans for a series of snapshots and checks the laws for each.
func walk(t *testing.T, c *chance, steps int) {
	t.Helper()
	opts := &Options{
		NodePorts:        NodePortAddresses{Primary: c.yes(), Loopback: c.yes()},
		NodeCIDR:         c.yes(),
		MasqueradeAll:    c.yes(),
		ServeExternalIPs: c.yes(),
	}
	snap := &cluster.Snapshot{Node: &cluster.Node{Name: thisNode}}
	plans := []*Plan{nil}
	for range steps {
		for range 1 + c.below(3) { // syncs coalesce
			snap = randomChange(c, snap)
		}
		before := plans[len(plans)-1]
		if c.below(4) == 0 {
			before = pick(c, plans...)
		}
		got := Compute(snap, opts, before)
		if diff := differs(contentsOf(Compute(snap, opts, nil)), contentsOf(got)); diff != "" {
			t.Fatalf("an earlier plan changes the result (-without +with):\n%s", diff)
		}
		if diff := differs(expected(got), contentsOf(got)); diff != "" {
			t.Fatalf("the plan does not follow from its Services (-want +got):\n%s", diff)
		}
		checkIdentity(t, before, got)
		checkRoutes(t, got)
		checkFlows(t, before, got)
		plans = append(plans, got)
	}
}

// checkIdentity checks that equal decisions keep their pointers, so that a comparison finds only real changes. A change of
// the node that affects Services may replace all of them.
func checkIdentity(t *testing.T, before, after *Plan) {
	t.Helper()
	if before == nil || !sameForServices(before.snapshot.Node, after.snapshot.Node) {
		return
	}
	for frontend, change := range cluster.Changes(before.Frontends, after.Frontends) {
		if change.Was && change.Is && change.Before.Service == change.After.Service && change.Before.Port() == change.After.Port() &&
			change.Before.equal(change.After) {
			t.Fatalf("the route of %s has a new pointer but is equal", frontend)
		}
	}
	if before.Node != after.Node && before.Node.equal(after.Node) {
		t.Fatal("the node has a new pointer but is equal")
	}
}

// checkRoutes checks the invariants of every route.
func checkRoutes(t *testing.T, p *Plan) {
	t.Helper()
	for frontend, route := range p.Frontends.All() {
		empty := len(route.Pool.Endpoints) == 0
		sorted := slices.IsSortedFunc(route.Pool.Endpoints, netip.AddrPort.Compare)
		distinct := len(slices.Compact(slices.Clone(route.Pool.Endpoints))) == len(route.Pool.Endpoints)
		switch {
		case frontend != route.Frontend:
			t.Fatalf("%s leads to the route of %s", frontend, route.Frontend)
		case !frontend.Addr.IsValid() || frontend.Port == 0 || frontend.IsNodePort() != (route.Kind == NodePort):
			t.Fatalf("%s cannot be a frontend of kind %s", frontend, route.Kind)
		case empty != (route.Verdict != Balance):
			t.Fatalf("%s has verdict %s with %d endpoints", frontend, route.Verdict, len(route.Pool.Endpoints))
		case !sorted || !distinct:
			t.Fatalf("the endpoints of %s are not a sorted set: %v", frontend, route.Pool.Endpoints)
		case slices.ContainsFunc(route.Pool.Endpoints, func(e netip.AddrPort) bool { return cluster.FamilyOf(e.Addr()) != frontend.Family() }):
			t.Fatalf("%s has endpoints of another family: %v", frontend, route.Pool.Endpoints)
		case route.ShortCut != nil && (route.Policy != cluster.PolicyLocal || route.Kind == ClusterIP || len(route.ShortCut.Endpoints) == 0):
			t.Fatalf("%s has a short cut under policy %s", frontend, route.Policy)
		case len(route.SourceRanges) > 0 && route.Kind != LoadBalancerIP:
			t.Fatalf("%s of kind %s has source ranges", frontend, route.Kind)
		}
	}
}

// checkFlows checks that a flow is kept if a new one could be sent to the same endpoint, and that EndsFlows notices each flow that
// ends although its frontend stays with its port.
func checkFlows(t *testing.T, before, after *Plan) {
	t.Helper()
	clients := addrs("10.1.0.1", "10.9.0.1", "192.168.0.1", "127.0.0.1", "203.0.113.1", "fd00:1::1", "fd00:9::1", "2001:db8::1")
	for frontend, route := range after.Frontends.All() {
		if frontend.Protocol != cluster.UDP {
			continue
		}
		for _, client := range clients {
			if cluster.FamilyOf(client) == frontend.Family() {
				checkOpens(t, after, route, client)
				checkEnds(t, before, after, frontend, client)
			}
		}
	}
}

// checkOpens checks that a client keeps the flows that it may open.
func checkOpens(t *testing.T, p *Plan, route *Route, client netip.Addr) {
	t.Helper()
	destinations := []netip.Addr{route.Frontend.Addr}
	if route.Frontend.IsNodePort() {
		destinations = p.Node.NodePortAddrs
	}
	for _, addr := range destinations {
		path := p.Explain(Packet{Source: client, Interface: "eth0", To: netip.AddrPortFrom(addr, route.Frontend.Port), Protocol: cluster.UDP})
		if path.Route != route || path.Verdict != Balance {
			continue
		}
		if slices.ContainsFunc(path.Pool.Endpoints, func(e netip.AddrPort) bool { return !p.Keeps(route, client, e) }) {
			t.Fatalf("%s may open flows to %s at %v, but not keep them", client, route.Frontend, path.Pool.Endpoints)
		}
	}
}

// checkEnds compares the flows of a client that two plans of the same node keep.
func checkEnds(t *testing.T, before, after *Plan, frontend Frontend, client netip.Addr) {
	t.Helper()
	if before == nil || before.Node != after.Node {
		return
	}
	was, _ := before.Frontends.Get(frontend)
	is, _ := after.Frontends.Get(frontend)
	if was == nil || was.Service != is.Service || was.Port() != is.Port() {
		return
	}
	old, _ := before.Services.Get(was.Service)
	now, _ := after.Services.Get(is.Service)
	for _, endpoint := range old.ServingOn(was.Port(), frontend.Family()).Endpoints {
		if before.Keeps(was, client, endpoint) && !after.Keeps(is, client, endpoint) && !EndsFlows(old, now, frontend.Family()) {
			t.Fatalf("the flow of %s to %s at %s ends unnoticed, from %+v to %+v", client, frontend, endpoint, was, is)
		}
	}
}

// TestLaws walks through random changes.
func TestLaws(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		walk(t, newChance(t, random.IntN), 30)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzLaws walks through the changes encoded in the fuzzer's input.
func FuzzLaws(f *testing.F) {
	f.Add([]byte("a short walk"))
	f.Add([]byte(strings.Repeat("\x07\x00\x01\x02\x01\x01\x02\x00\x03\x01\x02", 20)))
	f.Fuzz(func(t *testing.T, steps []byte) {
		next := func(n int) int {
			if len(steps) == 0 {
				return 0
			}
			value := int(steps[0]) % n
			steps = steps[1:]
			return value
		}
		walk(t, newChance(t, next), 1+min(len(steps)/40, 20))
	})
}
