package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	return s.pick("fd00::1", "127.0.0.1", "::ffff:10.1.0.1", "010.1.0.1", "", "None", "fe80::1%eth0", "fe80::1", "ff02::1", text)
}

func (s *script) addresses() (all []string) {
	for range s.next(3) {
		all = append(all, s.address())
	}
	return all
}

func (s *script) cidr() string { return s.address() + s.pick("/8", "/33", "/104", "", " ", "/08") }

// label returns a label with a value, or none.
func (s *script) label(name string) map[string]string {
	if s.next(6) > 0 {
		return nil
	}
	return map[string]string{name: s.pick("", "x")}
}

// maybe returns a pointer to a value, or nil.
func maybe[T any](s *script, values ...T) *T {
	if at := s.next(len(values) + 1); at < len(values) {
		return &values[at]
	}
	return nil
}

func (s *script) service() *corev1.Service {
	o := newService(s.pick("a", "b", "c"), s.address())
	o.Namespace = s.pick("ns", "ns", "other")
	o.Labels = s.label(LabelServiceProxyName)
	if more := s.addresses(); len(more) > 0 {
		o.Spec.ClusterIPs = append(o.Spec.ClusterIPs, more...)
	}
	if s.next(4) == 0 {
		o.Spec.ClusterIPs = nil
	}
	o.Spec.Type = corev1.ServiceType(s.pick("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName", ""))
	o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(s.pick("", "Cluster", "Local"))
	o.Spec.InternalTrafficPolicy = maybe(s, corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyCluster)
	o.Spec.SessionAffinity = corev1.ServiceAffinity(s.pick("None", "ClientIP"))
	if timeout := maybe[int32](s, -1, 0, 1, 86400, 86401); timeout != nil {
		o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: timeout}}
	}
	o.Spec.ExternalIPs = s.addresses()
	for range s.next(3) {
		o.Spec.LoadBalancerSourceRanges = append(o.Spec.LoadBalancerSourceRanges, s.cidr())
	}
	for _, addr := range s.addresses() {
		mode := maybe(s, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
		o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addr, IPMode: mode})
	}
	o.Spec.HealthCheckNodePort = s.port()
	for range s.next(3) {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: s.pick("", "x"), Protocol: s.protocol(), Port: s.port(), NodePort: s.port()})
	}
	return o
}

func (s *script) port() int32 { return []int32{1, 65535, 0, -1, 65536, 80}[s.next(6)] }

func (s *script) protocol() corev1.Protocol {
	return corev1.Protocol(s.pick("", "TCP", "UDP", "SCTP", "x"))
}

func (s *script) slice() *discoveryv1.EndpointSlice {
	o := newSlice(s.pick("a-1", "b-2", "3"), s.pick("a", "b", "c", ""))
	o.Namespace = s.pick("ns", "ns", "other")
	maps.Copy(o.Labels, s.label(corev1.IsHeadlessService))
	o.AddressType = discoveryv1.AddressType(s.pick("IPv4", "IPv4", "IPv6", "FQDN", ""))
	for range s.next(3) {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: maybe(s, "", "x", "y"), Protocol: maybe(s, s.protocol()), Port: maybe(s, s.port())})
	}
	for range s.next(4) {
		e := discoveryv1.Endpoint{Addresses: s.addresses(), NodeName: maybe(s, "n1", "n2", ""), Conditions: discoveryv1.EndpointConditions{
			Ready: maybe(s, false, true), Serving: maybe(s, false, true), Terminating: maybe(s, false, true)}}
		if s.next(2) > 0 {
			e.Hints = &discoveryv1.EndpointHints{}
			for range s.next(3) {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: s.pick("z", "y", "")})
				e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: s.pick("n1", "n2")})
			}
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	return o
}

func (s *script) node() *corev1.Node {
	o := newNode(s.pick("n1", "n1", "n2"), s.addresses()...)
	for i := range o.Status.Addresses {
		o.Status.Addresses[i].Type = corev1.NodeAddressType(s.pick("InternalIP", "ExternalIP", "Hostname"))
	}
	o.Labels = s.label(corev1.LabelTopologyZone)
	for range s.next(3) {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, s.cidr())
	}
	switch s.next(6) {
	case 1:
		o.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}, {Key: "x"}}
	case 2:
		o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return o
}

// event applies one event to a builder and to the model.
func (s *script) event(u *Update, m *model) {
	switch s.next(10) {
	case 0, 1:
		o := s.service()
		m.services[ServiceName{o.Namespace, o.Name}] = o
		u.SetService(o)
	case 2:
		name := ServiceName{s.pick("ns", "other"), s.pick("a", "b", "c")}
		delete(m.services, name)
		u.DeleteService(name)
	case 3, 4:
		o := s.slice()
		m.slices[SliceName{o.Namespace, o.Name}] = o
		u.SetEndpointSlice(o)
	case 5:
		name := SliceName{s.pick("ns", "other"), s.pick("a-1", "b-2", "3")}
		delete(m.slices, name)
		u.DeleteEndpointSlice(name)
	case 6:
		o := s.node()
		if o.Name == m.name {
			m.nodes, m.deleted = append(m.nodes, o), false
		}
		u.SetNode(o)
	case 7:
		m.deleted = true
		u.DeleteNode()
	case 8:
		o := newCIDR(s.pick("x", "y"), s.cidr(), s.cidr())
		m.cidrs[o.Name] = o
		if s.next(3) == 0 {
			delete(m.cidrs, o.Name)
			u.DeleteServiceCIDR(o.Name)
			break
		}
		u.SetServiceCIDR(o)
	case 9:
		m.interfaces = addresses(s.addresses())
		u.SetInterfaces(m.interfaces)
		slices.SortFunc(m.interfaces, netip.Addr.Compare)
	}
}

// frozen is a Snapshot and its description at the time at which it was taken.
type frozen struct {
	snapshot *Snapshot
	text     string
}

// checkWalk applies a script to a builder and to the model. It checks that they agree on every Snapshot, on the number of
// endpoints and on the slices without a Service; that Changes finds every Service that differs; that a notification is sent
// exactly if the Snapshot changed; and that no Snapshot changes later.
func checkWalk(t *testing.T, data []byte) {
	t.Helper()
	s := &script{data}
	var configured []netip.Addr
	if s.next(3) == 0 {
		configured = append(configured, netip.MustParseAddr(s.pick("192.0.2.9", "2001:db8::9")))
	}
	m, b := newModel("n1", configured...), NewBuilder("n1", configured...)
	before, first := b.Snapshot(), false
	if s.next(3) == 0 { // nobody has asked for a snapshot before the first events
		b, first = NewBuilder("n1", configured...), true
	}
	var all []frozen
	for len(s.data) > 0 {
		freeze := s.next(2) > 0
		apply(b, func(u *Update) {
			for range 1 + s.next(3) {
				s.event(u, m)
			}
		})
		if !freeze {
			continue
		}
		after := b.Snapshot()
		text := describe(after)
		if diff := cmp.Diff(describe(m.snapshot()), text); diff != "" {
			t.Fatalf("(-model +builder):\n%s", diff)
		}
		if b.Endpoints() != m.endpoints() {
			t.Fatalf("%d endpoints, want %d", b.Endpoints(), m.endpoints())
		}
		if was := notified(b); !first && was != (after != before) {
			t.Fatal("notification without a new snapshot, or the reverse")
		}
		if diff := cmp.Diff(m.unowned(after), unowned(b)); diff != "" {
			t.Fatalf("slices without a Service (-model +builder):\n%s", diff)
		}
		checkChangesOf(t, before, after)
		apply(b, m.relist)
		if notified(b) || b.Snapshot() != after {
			t.Fatal("setting all objects again is a change")
		}
		before, first, all = after, false, append(all, frozen{after, text})
	}
	for _, f := range all {
		if diff := cmp.Diff(f.text, describe(f.snapshot)); diff != "" {
			t.Fatalf("a snapshot has changed (-before +now):\n%s", diff)
		}
	}
}

// unowned returns the names of the slices that a builder has without a Service.
func unowned(b *Builder) map[ServiceName][]string {
	found := map[ServiceName][]string{}
	for _, u := range b.Unowned() {
		for _, slice := range u.Slices {
			found[u.Service] = append(found[u.Service], slice.Name)
		}
	}
	return found
}

// checkChangesOf checks that Changes finds every Service that differs between two Snapshots.
func checkChangesOf(t *testing.T, before, after *Snapshot) {
	t.Helper()
	found := map[ServiceName]bool{}
	for name := range Changes(before.Services, after.Services) {
		found[name] = true
	}
	old, now := services(before), services(after)
	for name := range old {
		if now[name] != old[name] && !found[name] {
			t.Fatalf("Changes does not report %s", name)
		}
	}
	for name := range now {
		if old[name] == "" && !found[name] {
			t.Fatalf("Changes does not report the new %s", name)
		}
	}
}

// services describes each Service of a Snapshot.
func services(s *Snapshot) map[ServiceName]string {
	texts := map[ServiceName]string{}
	for name, service := range s.Services.All() {
		texts[name] = describeService(service)
	}
	return texts
}

// TestRandomWalks applies random scripts.
func TestRandomWalks(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, 1500)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		checkWalk(t, data)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzBuilder applies the script in the fuzzer's input.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte{0, 0, 1, 3, 0, 0, 0, 2, 1, 1, 1, 1, 2, 0, 5, 0})
	f.Add(bytes.Repeat([]byte{3, 1, 0, 7, 2, 5, 11, 4, 9, 6, 1, 8}, 60))
	f.Fuzz(checkWalk)
}
