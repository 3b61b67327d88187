package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

func udp(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }

// preserved keeps UDP flows while their endpoints terminate.
func preserved(s *corev1.Service) {
	s.Annotations = map[string]string{cluster.AnnotationUDPConnectionHandling: "PreserveDuringTermination"}
}

// udpSlice is like slice, for a UDP port.
func udpSlice(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := slice(name, endpoints...)
	protocol := corev1.ProtocolUDP
	s.Ports[0].Protocol = &protocol
	return s
}

// TestServing checks which endpoints serve, and which of them are on this node, regardless of readiness and hints.
func TestServing(t *testing.T) {
	for _, test := range []struct {
		name      string
		service   *corev1.Service
		endpoints []string
		want      string
	}{
		{"ready", service(udp), []string{"10.1.0.1 here", "10.2.0.1"}, "[10.1.0.1:8080 10.2.0.1:8080]"},
		{"draining beside ready", service(udp), []string{"10.1.0.1 draining", "10.2.0.1"}, "[10.1.0.1:8080 10.2.0.1:8080]"},
		{"terminating, serving not set", service(udp), []string{"10.1.0.1 leaving", "10.2.0.1"}, "[10.1.0.1:8080 10.2.0.1:8080]"},
		{"dead and unready", service(udp), []string{"10.1.0.1 dead", "10.2.0.1 unready", "10.2.0.2"}, "[10.2.0.2:8080]"},
		{"dead, with the annotation but without the feature", service(udp, preserved), []string{"10.1.0.1 dead", "10.2.0.2"}, "[10.2.0.2:8080]"},
		{"serving, not ready yet", service(udp), []string{"10.1.0.1 warming", "10.2.0.1"}, "[10.1.0.1:8080 10.2.0.1:8080]"},
		{"policy Local", service(udp, internalLocal), []string{"10.1.0.1 here", "10.2.0.1"}, "[10.1.0.1:8080 10.2.0.1:8080]"},
		{"hints", service(udp), []string{"10.1.0.1 zone=a", "10.2.0.1 zone=b"}, "[10.1.0.1:8080 10.2.0.1:8080]"},
		{"none", service(udp), nil, "[]"},
		{"TCP", service(), []string{"10.1.0.1 here"}, "no such port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.update(func(u *cluster.Update) {
				u.SetService(test.service)
				u.SetEndpointSlice(slice("tcp", test.endpoints...))
				u.SetEndpointSlice(udpSlice("udp", test.endpoints...))
			})
			decided, _ := w.plan().Services.Get(cluster.ServiceName{Namespace: "ns", Name: "web"})
			got := "no such port"
			if serving := decided.ServingOn("", cluster.IPv4); serving != nil {
				got = fmt.Sprint(serving.Endpoints)
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if decided.ServingOn("", cluster.IPv6) != nil || decided.ServingOn("other", cluster.IPv4) != nil {
				t.Error("the Service serves a port or family that it does not have")
			}
		})
	}
}

// flow is a client's UDP flow to a frontend, which an endpoint serves.
type flow struct{ client, to, endpoint string }

func (p *Plan) keeps(t *testing.T, f flow) bool {
	t.Helper()
	route := p.RouteTo(netip.MustParseAddrPort(f.to), cluster.UDP)
	if route == nil {
		t.Fatalf("no route to %s", f.to)
	}
	return p.Keeps(route, netip.MustParseAddr(f.client), netip.MustParseAddrPort(f.endpoint))
}

// changes are changes of a Service.
type changes []func(*corev1.Service)

// keepsTest changes a Service, whose endpoints were keepsEndpoints. ends reports whether a flow that was kept ends.
type keepsTest struct {
	name      string
	from, to  changes
	endpoints []string
	// byInterface detects pods by interface: no client is known not to be one, and EndsFlows only guesses.
	byInterface bool
	ends        func(flow) bool
}

var keepsEndpoints = [...]string{"10.1.0.1 here", "10.1.0.2 here draining", "10.2.0.1"}

// The endpoints and the frontends of TestKeeps.
const (
	here, drains, there = "10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.1:8080"
	toIP, toVIP         = clusterIP + ":80", virtualIP + ":80"
	toExtra, toNode     = extraIP + ":80", nodeIP + ":30080"
)

func keepsTests() []keepsTest {
	ranges := func(texts ...string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = texts }
	}
	endpoints, none := keepsEndpoints[:], func(flow) bool { return false }
	return []keepsTest{
		{"nothing changes", nil, nil, endpoints, false, none},
		{"an endpoint more", nil, nil, append(slices.Clone(endpoints), "10.2.0.2"), false, none},
		{"hints", nil, nil, []string{"10.1.0.1 here zone=b", "10.1.0.2 here draining", "10.2.0.1 zone=a"}, false, none},
		{"an endpoint drains", nil, nil, []string{"10.1.0.1 here draining", "10.1.0.2 here draining", "10.2.0.1"}, false, none},
		{"an endpoint leaves", nil, nil, endpoints[1:], false, func(f flow) bool { return f.endpoint == here }},
		{"an endpoint dies", nil, nil, []string{endpoints[0], "10.1.0.2 here dead", endpoints[2]}, false, func(f flow) bool { return f.endpoint == drains }},
		{"all leave", nil, nil, nil, false, func(flow) bool { return true }},
		{"an endpoint dies, flows are preserved", changes{preserved}, changes{preserved}, []string{endpoints[0], "10.1.0.2 here dead", endpoints[2]}, false, none},
		{"all die, flows are preserved", changes{preserved}, changes{preserved, externalLocal}, []string{"10.1.0.1 here dead", "10.1.0.2 here dead", "10.2.0.1 dead"}, false,
			func(f flow) bool {
				return f.to != toIP && f.endpoint == there && (f.client == outside || f.client == otherPod)
			}},
		{"flows are preserved, an endpoint leaves", changes{preserved}, changes{preserved}, endpoints[1:], false, func(f flow) bool { return f.endpoint == here }},
		{"flows are preserved, an endpoint is unready", changes{preserved}, changes{preserved}, []string{endpoints[0], "10.1.0.2 here unready", endpoints[2]}, false,
			func(f flow) bool { return f.endpoint == drains }},
		{"flows are no longer preserved", changes{preserved}, nil, []string{endpoints[0], "10.1.0.2 here dead", endpoints[2]}, false,
			func(f flow) bool { return f.endpoint == drains }},
		{"source ranges", nil, changes{ranges("203.0.113.0/24", "10.1.0.9/32")}, endpoints, false,
			func(f flow) bool { return f.to == toVIP && f.client != outside && f.client != localPod }},
		{"source ranges with this node", nil, changes{ranges(nodeIP+"/32", "0.0.0.0/32")}, endpoints, false,
			func(f flow) bool { return f.to == toVIP && f.client != nodeIP }},
		{"external Local", nil, changes{externalLocal}, endpoints, false,
			func(f flow) bool {
				return f.to != toIP && f.endpoint == there && (f.client == outside || f.client == otherPod)
			}},
		{"external Local, pods known by interface", nil, changes{externalLocal}, endpoints, true, none},
		{"external Local and source ranges", nil, changes{externalLocal, ranges("10.0.0.0/8")}, endpoints, false,
			func(f flow) bool {
				return f.to == toVIP && f.client != localPod && f.client != otherPod ||
					f.to != toIP && f.endpoint == there && (f.client == outside || f.client == otherPod)
			}},
		{"internal Local", nil, changes{internalLocal}, endpoints, false,
			func(f flow) bool { return f.to == toIP && f.endpoint == there }},
		{"both Local, where no endpoint is here", nil, changes{externalLocal, internalLocal}, []string{"10.1.0.1", "10.1.0.2 nowhere", "10.2.0.1"}, false,
			func(f flow) bool { return f.to == toIP || f.client == outside || f.client == otherPod }},
		{"both Local, an endpoint elsewhere leaves", changes{externalLocal, internalLocal}, changes{externalLocal, internalLocal}, endpoints[:2], false,
			func(f flow) bool { return f.endpoint == there }},
		{"both Local, an endpoint here dies", changes{externalLocal, internalLocal}, changes{externalLocal, internalLocal},
			[]string{endpoints[0], "10.1.0.2 here dead", endpoints[2]}, false, func(f flow) bool { return f.endpoint == drains }},
		{"no longer Local", changes{externalLocal, internalLocal}, nil, endpoints, false, none},
		{"source ranges are wider", changes{ranges("203.0.113.0/24")}, changes{ranges("203.0.112.0/23", "10.0.0.0/8")}, endpoints, false, none},
		{"source ranges are narrower", changes{ranges("203.0.113.0/24", "10.0.0.0/8")}, changes{ranges("10.0.0.0/8")}, endpoints, false,
			func(f flow) bool { return f.to == toVIP && f.client == outside }},
	}
}

// TestKeeps changes a Service with flows of each kind of client to each kind of address: to an endpoint on this node, one that
// drains on this node, and one on another node.
func TestKeeps(t *testing.T) {
	for _, test := range keepsTests() {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.options.KeepTerminatingUDPFlows = true
			if test.byInterface {
				w.options.LocalTraffic = LocalTraffic{Interface: "veth*"}
			}
			planned := func(all changes, endpoints []string) (*Plan, *Service) {
				w.update(func(u *cluster.Update) {
					u.SetService(service(append(changes{udp, everywhere}, all...)...))
					u.SetEndpointSlice(udpSlice("a", endpoints...))
				})
				p := w.plan()
				s, _ := p.Services.Get(cluster.ServiceName{Namespace: "ns", Name: "web"})
				return p, s
			}
			before, was := planned(test.from, keepsEndpoints[:])
			after, is := planned(test.to, test.endpoints)
			ends := test.check(t, before, after)
			if got := EndsFlows(was, is, cluster.IPv4); got != ends && !test.byInterface {
				t.Errorf("flows may end: %t, want %t", got, ends)
			}
			if EndsFlows(was, is, cluster.IPv6) || EndsFlows(was, was, cluster.IPv4) || EndsFlows(nil, is, cluster.IPv4) || EndsFlows(was, nil, cluster.IPv4) {
				t.Error("flows may end where nothing changes")
			}
		})
	}
}

// check compares the flows that two plans keep, and reports whether one ends.
func (test keepsTest) check(t *testing.T, before, after *Plan) (ends bool) {
	t.Helper()
	for _, client := range []string{outside, otherPod, localPod, nodeIP, "127.0.0.2"} {
		for _, to := range []string{toIP, toVIP, toExtra, toNode} {
			for _, endpoint := range []string{here, drains, there} {
				f := flow{client, to, endpoint}
				if !before.keeps(t, f) {
					continue
				}
				if got, want := after.keeps(t, f), !test.ends(f); got != want {
					t.Errorf("%v is kept: %t, want %t", f, got, want)
				}
				ends = ends || test.ends(f)
			}
		}
	}
	return ends
}

// TestRoutesOfFlows looks up frontends that are not served.
func TestRoutesOfFlows(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service(udp, everywhere))
		u.SetEndpointSlice(udpSlice("a", "10.1.0.1 here"))
	})
	p := w.plan()
	for _, to := range []string{clusterIP + ":81", otherPod + ":30080", "192.168.0.2:30080"} {
		if route := p.RouteTo(netip.MustParseAddrPort(to), cluster.UDP); route != nil {
			t.Errorf("there is a route to %s: %s", to, route.Name)
		}
	}
	if route := p.RouteTo(netip.MustParseAddrPort(clusterIP+":80"), cluster.TCP); route != nil {
		t.Errorf("there is a route for TCP: %s", route.Name)
	}
}

// TestServingShares checks that equal lists share memory, with a pool and between plans.
func TestServingShares(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service(udp))
		u.SetEndpointSlice(udpSlice("a", "10.1.0.1", "10.2.0.1"))
	})
	same := func(a, b []netip.AddrPort) bool {
		return slices.Equal(a, b) && unsafe.SliceData(a) == unsafe.SliceData(b)
	}
	of := func(p *Plan) (serving, pool []netip.AddrPort) {
		decided, _ := p.Services.Get(cluster.ServiceName{Namespace: "ns", Name: "web"})
		return decided.ServingOn("", cluster.IPv4).Endpoints, decided.Routes[0].Pool.Endpoints
	}
	serving, pool := of(w.plan())
	if !same(serving, pool) {
		t.Errorf("%v and the pool %v do not share memory", serving, pool)
	}
	w.update(func(u *cluster.Update) { u.SetEndpointSlice(udpSlice("a", "10.1.0.1", "10.2.0.1 draining")) })
	first := w.plan()
	w.update(func(u *cluster.Update) { u.SetEndpointSlice(udpSlice("b", "10.2.0.3 dead")) })
	before, _ := of(first)
	after, _ := of(Compute(w.builder.Snapshot(), w.options, first))
	if !same(before, after) {
		t.Errorf("%v and the earlier %v do not share memory", after, before)
	}
}
