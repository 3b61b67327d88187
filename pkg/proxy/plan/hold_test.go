package plan

import (
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestHold holds ports of a Service that has changed: they have their earlier routes or none, and nothing else differs.
func TestHold(t *testing.T) {
	name := cluster.ServiceName{Namespace: "ns", Name: "web"}
	addrs := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00::1")}
	compute := func(endpoint string, last *Plan) *Plan {
		services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(name, &cluster.Service{
			Name: name, ClusterIPs: addrs,
			Ports: []cluster.ServicePort{{Name: "a", Protocol: cluster.TCP, Port: 80}, {Name: "b", Protocol: cluster.TCP, Port: 81}},
			Slices: []*cluster.EndpointSlice{{Name: "s", Ports: []cluster.EndpointPort{{Name: "a", Protocol: cluster.TCP, Port: 8080}, {Name: "b", Protocol: cluster.TCP, Port: 8081}},
				Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr(endpoint), Conditions: cluster.Ready | cluster.Serving}}}},
		})
		return Compute(&cluster.Snapshot{Services: services, Node: &cluster.Node{}}, &Options{}, last)
	}
	before := compute("10.244.0.1", nil)
	p := compute("10.244.0.2", before)
	if p.Hold(nil) != p {
		t.Error("holding nothing makes another plan")
	}
	a := Port{Service: name, Name: "a", Protocol: cluster.TCP, Family: cluster.IPv4}
	b := Port{Service: name, Name: "b", Protocol: cluster.TCP, Family: cluster.IPv4}
	frontend := func(addr netip.Addr, port uint16) Frontend {
		return Frontend{Addr: addr, Protocol: cluster.TCP, Port: port}
	}

	held := p.Hold(map[Port][]*Route{a: before.RoutesOf(a)})
	if route, _ := held.Frontends.Get(frontend(addrs[0], 80)); route == nil || route != before.RoutesOf(a)[0] {
		t.Errorf("the earlier route is not held: %v", route)
	}
	for _, f := range []Frontend{frontend(addrs[0], 81), frontend(addrs[1], 80), frontend(addrs[1], 81)} {
		was, _ := p.Frontends.Get(f)
		if is, ok := held.Frontends.Get(f); !ok || is != was {
			t.Errorf("%s has another route", f)
		}
	}
	if held.ClusterIPs.Len() != 2 {
		t.Error("a Service with a held route loses its cluster IP")
	}

	held = p.Hold(map[Port][]*Route{a: nil, b: nil})
	if _, ok := held.Frontends.Get(frontend(addrs[0], 80)); ok || held.Frontends.Len() != 2 {
		t.Errorf("%d frontends, want those of IPv6", held.Frontends.Len())
	}
	if _, ok := held.ClusterIPs.Get(addrs[0]); ok || held.ClusterIPs.Len() != 1 {
		t.Error("a Service without routes in IPv4 keeps its cluster IP there")
	}
	if _, ok := p.Frontends.Get(frontend(addrs[0], 80)); !ok {
		t.Error("the plan itself was changed")
	}

	// Each of these ports had the address and port once.
	first, second := &Route{Frontend: frontend(addrs[0], 80)}, &Route{Frontend: frontend(addrs[0], 80)}
	for range 100 { // the order of a Go map is random
		held = p.Hold(map[Port][]*Route{a: {first}, b: {second}})
		if route, _ := held.Frontends.Get(first.Frontend); route != first {
			t.Fatal("of two ports with the same frontend, the second one holds it")
		}
	}
}
