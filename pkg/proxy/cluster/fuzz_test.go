package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// script derives decisions from a fuzzer's bytes; after the end of the data every decision is 0.
type script struct {
	data []byte
}

func (s *script) next(below int) int {
	if len(s.data) == 0 {
		return 0
	}
	n := int(s.data[0])
	s.data = s.data[1:]
	return n % below
}

func (s *script) pick(values ...string) string { return values[s.next(len(values))] }

// address returns an address that is valid, special, of either family, or invalid.
func (s *script) address() string {
	if s.next(4) > 0 {
		return fmt.Sprintf("10.1.0.%d", s.next(8))
	}
	length := s.next(6)
	text := string(s.data[:min(length, len(s.data))])
	return s.pick("fd00::1", "127.0.0.1", "::ffff:10.1.0.1", "010.1.0.1", "", "None", text)
}

func (s *script) service() *corev1.Service {
	return newService(s.pick("a", "b", "c"), s.address(), func(o *corev1.Service) {
		o.Spec.Type = corev1.ServiceType(s.pick("ClusterIP", "NodePort", "LoadBalancer", "ExternalName", ""))
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(s.pick("", "Cluster", "Local"))
		o.Spec.SessionAffinity = corev1.ServiceAffinity(s.pick("None", "ClientIP"))
		o.Spec.ExternalIPs = []string{s.address()}
		o.Spec.LoadBalancerSourceRanges = []string{s.address() + s.pick("/8", "/33", "/104", "")}
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: s.address()}}
		o.Spec.HealthCheckNodePort = int32(s.next(3)) - 1
		for range s.next(3) {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: s.pick("", "x"), Protocol: corev1.Protocol(s.pick("", "TCP", "UDP", "x")), Port: int32(s.next(4)) - 1, NodePort: int32(s.next(3)) - 1})
		}
	})
}

func (s *script) slice() *discoveryv1.EndpointSlice {
	o := newSlice(s.pick("1", "2", "3"), s.pick("a", "b", "c", ""))
	o.AddressType = discoveryv1.AddressType(s.pick("IPv4", "IPv6", "FQDN", ""))
	flags := []*bool{nil, new(bool), new(bool)}
	*flags[2] = true
	node := s.pick("n1", "n2", "")
	for range s.next(4) {
		e := discoveryv1.Endpoint{Addresses: []string{s.address()}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: flags[s.next(3)], Serving: flags[s.next(3)], Terminating: flags[s.next(3)]}}
		if s.next(2) > 0 {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: s.pick("z", "y", "")}}, ForNodes: []discoveryv1.ForNode{{Name: node}}}
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	return o
}

// world holds the objects that exist after all events, without their history.
type world struct {
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	cidrs    map[string]*networkingv1.ServiceCIDR
	node     *corev1.Node
	// addressed is the last version of node that had an address: a Node without one keeps it.
	addressed *corev1.Node
	addrs     []netip.Addr
}

// event applies one event to a builder and to the world.
func (s *script) event(u *Update, w *world) {
	switch s.next(8) {
	case 0, 1:
		o := s.service()
		w.services[o.Name] = o
		u.SetService(o)
	case 2:
		name := s.pick("a", "b", "c")
		delete(w.services, name)
		u.DeleteService(ServiceName{"ns", name})
	case 3, 4:
		o := s.slice()
		w.slices[o.Name] = o
		u.SetEndpointSlice(o)
	case 5:
		name := s.pick("1", "2", "3")
		delete(w.slices, name)
		u.DeleteEndpointSlice(SliceName{"ns", name})
	case 6:
		addr := s.address()
		o := newNode(s.pick("n1", "n2"), addr)
		if o.Name == "n1" {
			w.node = o
			if _, err := ParseAddr(addr); err == nil {
				w.addressed = o
			}
		}
		u.SetNode(o)
	case 7:
		o := newCIDR(s.pick("x", "y"), s.address()+s.pick("/8", "/16", ""))
		w.cidrs[o.Name] = o
		u.SetServiceCIDR(o)
		if addr, err := netip.ParseAddr(s.address()); err == nil {
			w.addrs = append(w.addrs, addr)
			u.SetInterfaces(w.addrs)
		}
	}
}

// build adds each object to a new builder once.
func (w *world) build() *Builder {
	b := NewBuilder("n1")
	apply(b, func(u *Update) {
		for _, o := range w.slices {
			u.SetEndpointSlice(o)
		}
		for _, o := range w.services {
			u.SetService(o)
		}
		for _, o := range w.cidrs {
			u.SetServiceCIDR(o)
		}
		if w.addressed != nil {
			u.SetNode(w.addressed)
		}
		if w.node != nil {
			u.SetNode(w.node)
		}
		u.SetInterfaces(w.addrs)
	})
	return b
}

// checkHistory applies a script to a builder. It checks that the snapshot depends only on the objects and not on
// their history, that a notification comes exactly when the snapshot changes, and that the number of endpoints is
// right.
func checkHistory(t *testing.T, data []byte) {
	t.Helper()
	s := &script{data}
	w := &world{services: map[string]*corev1.Service{}, slices: map[string]*discoveryv1.EndpointSlice{}, cidrs: map[string]*networkingv1.ServiceCIDR{}}
	b := NewBuilder("n1")
	before := b.Snapshot()
	for len(s.data) > 0 {
		freeze := s.next(2) > 0
		apply(b, func(u *Update) {
			for range 1 + s.next(3) {
				s.event(u, w)
			}
		})
		if !freeze {
			continue
		}
		after := b.Snapshot()
		if notified(b) != (after != before) {
			t.Fatal("notification without a new snapshot, or the reverse")
		}
		before = after
	}
	fresh := w.build()
	if diff := cmp.Diff(describe(fresh.Snapshot()), describe(b.Snapshot())); diff != "" {
		t.Fatalf("the snapshot depends on the history (-new builder +old builder):\n%s", diff)
	}
	if b.Endpoints() != fresh.Endpoints() {
		t.Fatalf("%d endpoints, and %d in a new builder", b.Endpoints(), fresh.Endpoints())
	}
}

// TestRandomHistories applies random scripts: a builder that went through updates must equal a new one.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		checkHistory(t, data)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzBuilder applies the script in the fuzzer's input.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte{0, 0, 1, 3, 0, 0, 0, 2, 1, 1, 1, 1, 2, 0, 5, 0})
	f.Add([]byte{3, 0, 0, 0, 0, 3, 1, 1, 1, 1, 1, 0, 1, 2, 0, 0, 1, 1, 0, 0, 3, 0, 1, 0, 0, 2, 0, 5, 0})
	f.Add([]byte{7, 0, 1, 1, 0, 1, 1, 6, 0, 1, 1, 6, 1, 1, 1, 255, 254, 253, 252, 0, 0, 0, 4, 4, 4})
	f.Fuzz(checkHistory)
}
