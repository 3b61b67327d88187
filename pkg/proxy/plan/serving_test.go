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

// TestServing checks that endpoints that serve keep their flows, regardless of the policies for new flows.
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

// TestServes looks routes up: the Service that is served on a frontend decides.
func TestServes(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service(udp, everywhere))
		u.SetEndpointSlice(udpSlice("a", "10.1.0.1 here", "10.2.0.1 draining", "10.2.0.2 dead"))
	})
	p := w.plan()
	for _, to := range []string{clusterIP + ":80", virtualIP + ":80", extraIP + ":80", nodeIP + ":30080"} {
		route := p.RouteTo(netip.MustParseAddrPort(to), cluster.UDP)
		if route == nil {
			t.Errorf("no route to %s", to)
			continue
		}
		for endpoint, want := range map[string]bool{
			"10.1.0.1:8080": true, "10.2.0.1:8080": true, "10.2.0.2:8080": false, "10.1.0.1:8081": false, "192.0.2.1:80": false,
		} {
			if got := p.Serves(route, netip.MustParseAddrPort(endpoint)); got != want {
				t.Errorf("%s serves %s: %t, want %t", endpoint, to, got, want)
			}
		}
	}
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
