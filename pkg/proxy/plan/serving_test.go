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

// TestKeeps changes a Service with flows of each kind of client to each kind of address: to an endpoint on this node, one that
// drains on this node, and one on another node.
func TestKeeps(t *testing.T) {
	const here, drains, there = "10.1.0.1:8080", "10.1.0.2:8080", "10.2.0.1:8080"
	const toIP, toVIP, toExtra, toNode = clusterIP + ":80", virtualIP + ":80", extraIP + ":80", nodeIP + ":30080"
	ranges := func(texts ...string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = texts }
	}
	endpoints := []string{"10.1.0.1 here", "10.1.0.2 here draining", "10.2.0.1"}
	var all []flow
	for _, client := range []string{outside, otherPod, localPod, nodeIP, "127.0.0.1"} {
		for _, to := range []string{toIP, toVIP, toExtra, toNode} {
			for _, endpoint := range []string{here, drains, there} {
				all = append(all, flow{client, to, endpoint})
			}
		}
	}
	for _, test := range []struct {
		name      string
		change    []func(*corev1.Service)
		endpoints []string
		// byInterface detects pods by interface: no client is known not to be one, and EndsFlows only guesses.
		byInterface bool
		ends        func(flow) bool
	}{
		{"nothing changes", nil, endpoints, false, func(flow) bool { return false }},
		{"an endpoint more", nil, append(slices.Clone(endpoints), "10.2.0.2"), false, func(flow) bool { return false }},
		{"hints", nil, []string{"10.1.0.1 here zone=b", "10.1.0.2 here draining", "10.2.0.1 zone=a"}, false, func(flow) bool { return false }},
		{"an endpoint drains", nil, []string{"10.1.0.1 here draining", "10.1.0.2 here draining", "10.2.0.1"}, false, func(flow) bool { return false }},
		{"an endpoint leaves", nil, endpoints[1:], false, func(f flow) bool { return f.endpoint == here }},
		{"an endpoint dies", nil, []string{endpoints[0], "10.1.0.2 here dead", endpoints[2]}, false, func(f flow) bool { return f.endpoint == drains }},
		{"all leave", nil, nil, false, func(flow) bool { return true }},
		{"source ranges", []func(*corev1.Service){ranges("203.0.113.0/24", "10.1.0.9/32")}, endpoints, false,
			func(f flow) bool { return f.to == toVIP && f.client != outside && f.client != localPod }},
		{"source ranges with this node", []func(*corev1.Service){ranges(nodeIP+"/32", "0.0.0.0/32")}, endpoints, false,
			func(f flow) bool { return f.to == toVIP && f.client != nodeIP }},
		{"external Local", []func(*corev1.Service){externalLocal}, endpoints, false,
			func(f flow) bool {
				return f.to != toIP && f.endpoint == there && (f.client == outside || f.client == otherPod)
			}},
		{"external Local, pods known by interface", []func(*corev1.Service){externalLocal}, endpoints, true,
			func(flow) bool { return false }},
		{"external Local and source ranges", []func(*corev1.Service){externalLocal, ranges("10.0.0.0/8")}, endpoints, false,
			func(f flow) bool {
				return f.to == toVIP && f.client != localPod && f.client != otherPod ||
					f.to != toIP && f.endpoint == there && (f.client == outside || f.client == otherPod)
			}},
		{"internal Local", []func(*corev1.Service){internalLocal}, endpoints, false,
			func(f flow) bool { return f.to == toIP && f.endpoint == there }},
		{"both Local, where no endpoint is here", []func(*corev1.Service){externalLocal, internalLocal}, []string{"10.1.0.1", "10.1.0.2 nowhere", "10.2.0.1"}, false,
			func(f flow) bool { return f.to == toIP || f.client == outside || f.client == otherPod }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.update(func(u *cluster.Update) {
				u.SetService(service(udp, everywhere))
				u.SetEndpointSlice(udpSlice("a", endpoints...))
			})
			if test.byInterface {
				w.options.LocalTraffic = LocalTraffic{Interface: "veth*"}
			}
			before := w.plan()
			w.update(func(u *cluster.Update) {
				u.SetService(service(append([]func(*corev1.Service){udp, everywhere}, test.change...)...))
				u.SetEndpointSlice(udpSlice("a", test.endpoints...))
			})
			after, ends := w.plan(), false
			for _, f := range all {
				if !before.keeps(t, f) {
					t.Errorf("%v is not kept before", f)
				}
				if got, want := after.keeps(t, f), !test.ends(f); got != want {
					t.Errorf("%v is kept: %t, want %t", f, got, want)
				}
				ends = ends || test.ends(f)
			}
			was, _ := before.Services.Get(cluster.ServiceName{Namespace: "ns", Name: "web"})
			is, _ := after.Services.Get(cluster.ServiceName{Namespace: "ns", Name: "web"})
			if got := EndsFlows(was, is, cluster.IPv4); got != ends && !test.byInterface {
				t.Errorf("flows may end: %t, want %t", got, ends)
			}
			if EndsFlows(was, is, cluster.IPv6) || EndsFlows(was, was, cluster.IPv4) || EndsFlows(nil, is, cluster.IPv4) || EndsFlows(was, nil, cluster.IPv4) {
				t.Error("flows may end where nothing changes")
			}
		})
	}
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
