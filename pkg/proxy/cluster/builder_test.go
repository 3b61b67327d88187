package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newService returns a Service with one port.
func newService(name, clusterIP string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// newSlice returns an EndpointSlice with one port and the given IPv4 addresses.
func newSlice(name, service string, addresses ...string) *discoveryv1.EndpointSlice {
	portName, port, protocol := "", int32(8080), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return s
}

func newNode(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return n
}

func newCIDR(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

// describe formats everything in a snapshot, so that equal snapshots have equal text.
func describe(s *Snapshot) string {
	var text strings.Builder
	fmt.Fprintf(&text, "node %+v\nServiceCIDRs %v\n", *s.Node, s.ServiceCIDRs)
	for name, service := range s.Services.All() {
		fmt.Fprintf(&text, "%s %s", name, describeService(service))
	}
	return text.String()
}

func describeService(s *Service) string {
	var text strings.Builder
	plain := *s
	plain.Slices, plain.External = nil, nil
	fmt.Fprintf(&text, "%+v %+v\n", plain, s.external())
	for _, slice := range s.Slices {
		fmt.Fprintf(&text, "\t%s %v %v\n", slice.Name, slice.Ports, slice.Triggered)
		for _, e := range slice.Endpoints {
			fmt.Fprintf(&text, "\t\t%v %v %v\n", e.Addr, e.Conditions, e.Zones.Names())
		}
	}
	return text.String()
}

// apply makes one Update and returns the problems that it reported.
func apply(b *Builder, change func(*Update)) []string {
	var reported []string
	if err := b.Update(change); err != nil {
		for _, problem := range err.(interface{ Unwrap() []error }).Unwrap() {
			reported = append(reported, problem.Error())
		}
	}
	return reported
}

// notified consumes the builder's notification and reports whether there was one.
func notified(b *Builder) bool {
	select {
	case <-b.Changed():
		return true
	default:
		return false
	}
}

// history returns events that add, change and delete the objects of a cluster.
func history() []func(*Update) {
	return []func(*Update){
		func(u *Update) { u.SetService(newService("a", "10.0.0.1")) },
		func(u *Update) { u.SetEndpointSlice(newSlice("a-1", "a", "10.1.0.1", "10.1.0.2")) },
		func(u *Update) { u.SetEndpointSlice(newSlice("a-2", "a", "10.1.0.3")) },
		func(u *Update) { u.SetEndpointSlice(newSlice("a-0", "a", "10.1.0.2")) }, // repeats an endpoint of a-1
		func(u *Update) { u.SetService(newService("b", "10.0.0.2")) },
		func(u *Update) { u.SetEndpointSlice(newSlice("late-1", "late", "10.1.0.4")) }, // no such Service
		func(u *Update) { u.SetNode(newNode("n1", "192.0.2.1")) },
		func(u *Update) { u.SetNode(newNode("n2", "192.0.2.2")) },
		func(u *Update) { u.SetServiceCIDR(newCIDR("x", "10.0.0.0/16", "fd00::/112")) },
		func(u *Update) { u.SetServiceCIDR(newCIDR("y", "10.0.0.0/16")) },
		func(u *Update) {
			u.SetInterfaces([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("127.0.0.1")})
		},
	}
}

// TestOrder checks that the snapshot does not depend on the order of the objects or the size of the updates.
func TestOrder(t *testing.T) {
	events := history()
	build := func(events []func(*Update), at func(i int) bool) string {
		b := NewBuilder("n1")
		for len(events) > 0 {
			n := 1
			for n < len(events) && at(n) {
				n++
			}
			apply(b, func(u *Update) {
				for _, event := range events[:n] {
					event(u)
				}
			})
			events = events[n:]
			b.Snapshot() // must not affect the result
		}
		return describe(b.Snapshot())
	}
	want := build(events, func(int) bool { return false })
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		if diff := cmp.Diff(want, build(events, func(int) bool { return r.IntN(3) > 0 })); diff != "" {
			t.Fatalf("seed %d: (-want +got):\n%s", seed, diff)
		}
	}
}

// TestOldSnapshotsAreImmutable checks that later updates do not change a snapshot.
func TestOldSnapshotsAreImmutable(t *testing.T) {
	b := NewBuilder("n1")
	var snapshots []*Snapshot
	var texts []string
	events := append(history(),
		func(u *Update) { u.SetEndpointSlice(newSlice("a-1", "a", "10.1.0.9")) },
		func(u *Update) { u.DeleteEndpointSlice(SliceName{"ns", "a-2"}) },
		func(u *Update) { u.DeleteService(ServiceName{"ns", "a"}) },
		func(u *Update) { u.SetEndpointSlice(newSlice("a-1", "a", "10.1.0.10")) }, // whose list the last snapshot with the Service has
		func(u *Update) { u.SetEndpointSlice(newSlice("a-0", "a", "10.1.0.11")) },
		func(u *Update) { u.DeleteNode() },
		func(u *Update) { u.DeleteServiceCIDR("x") },
		func(u *Update) { u.SetInterfaces(nil) })
	for _, event := range events {
		apply(b, event)
		snapshots = append(snapshots, b.Snapshot())
		texts = append(texts, describe(b.Snapshot()))
	}
	for i, snapshot := range snapshots {
		if diff := cmp.Diff(texts[i], describe(snapshot)); diff != "" {
			t.Errorf("snapshot %d has changed (-before +now):\n%s", i, diff)
		}
	}
}

// TestUnownedIsImmutable checks that later updates do not change what Unowned has returned, before the first snapshot and after it.
func TestUnownedIsImmutable(t *testing.T) {
	b := NewBuilder("n1")
	for _, before := range []bool{true, false} {
		for _, name := range []string{"a-2", "a-4"} {
			_ = b.Update(func(u *Update) { u.SetEndpointSlice(newSlice(name, "a", "10.1.0.1")) })
		}
		got := b.Unowned()[0].Slices
		_ = b.Update(func(u *Update) {
			u.DeleteEndpointSlice(SliceName{"ns", "a-2"})
			u.SetEndpointSlice(newSlice("a-4", "a", "10.1.0.2"))
			u.SetEndpointSlice(newSlice("a-3", "a", "10.1.0.3"))
		})
		if len(got) != 2 || got[0] == nil || got[0].Name != "a-2" || got[1].Name != "a-4" || got[1].Endpoints[0].Addr.String() != "10.1.0.1" {
			t.Errorf("before the first snapshot %v: the slices became %+v", before, got)
		}
		_ = b.Update(func(u *Update) { u.DeleteEndpointSlice(SliceName{"ns", "a-3"}) })
		b.Snapshot()
	}
}

// TestForeignSlices gives this proxy a Service of another one, whose slices bear the label until the controller changes them: they are not
// missed before, and used at once.
func TestForeignSlices(t *testing.T) {
	b := NewBuilder("n1")
	slice := newSlice("a-2", "a", "10.1.0.1")
	slice.Labels[LabelServiceProxyName] = "other"
	_ = b.Update(func(u *Update) { u.SetEndpointSlice(slice) })
	if unowned := b.Unowned(); len(unowned) > 0 {
		t.Errorf("slices without a Service: %+v", unowned)
	}
	_ = b.Update(func(u *Update) { u.SetService(newService("a", "10.96.0.1")) })
	if s, ok := b.Snapshot().Services.Get(ServiceName{"ns", "a"}); !ok || len(s.Slices) != 1 {
		t.Errorf("the Service without the label: %+v", s)
	}
}

// TestUnchanged checks that an update without a relevant change causes neither a notification nor a new snapshot.
func TestUnchanged(t *testing.T) {
	b := NewBuilder("n1")
	apply(b, func(u *Update) {
		for _, event := range history() {
			event(u)
		}
	})
	if !notified(b) {
		t.Fatal("no notification of the first update")
	}
	b.Snapshot()
	more := []func(*Update){
		func(*Update) {},
		func(u *Update) { u.SetEndpointSlice(newSlice("late-2", "late", "10.1.0.5")) },
		func(u *Update) { u.DeleteEndpointSlice(SliceName{"ns", "late-2"}) },
		func(u *Update) { u.DeleteEndpointSlice(SliceName{"ns", "unknown"}) },
		func(u *Update) { u.DeleteService(ServiceName{"ns", "unknown"}) },
		func(u *Update) { u.DeleteServiceCIDR("unknown") },
		func(u *Update) { u.SetService(newService("headless", "None")) },
		func(u *Update) {
			s := newService("a", "10.0.0.1")
			s.Annotations, s.Labels, s.Spec.Selector = map[string]string{"a": "b"}, map[string]string{"a": "b"}, map[string]string{"a": "b"}
			u.SetService(s)
		},
		func(u *Update) {
			s := newSlice("a-1", "a", "10.1.0.1", "10.1.0.2")
			s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z"}
			u.SetEndpointSlice(s)
		},
	}
	for i, event := range append(history(), more...) {
		before := b.Snapshot()
		apply(b, event)
		if notified(b) || b.Snapshot() != before {
			t.Errorf("event %d changed the snapshot", i)
		}
	}
	for i := range 3 {
		apply(b, func(u *Update) { u.SetService(newService("a", fmt.Sprintf("10.0.0.%d", 10+i))) })
	}
	if !notified(b) || notified(b) {
		t.Error("three updates were not coalesced into one notification")
	}
}

// TestDevices changes the interfaces: the next Snapshot shows them, and there is a notification if a Service wishes the fast path.
func TestDevices(t *testing.T) {
	b := NewBuilder("n1")
	for i, wished := range []bool{false, true, false, true} {
		apply(b, func(u *Update) {
			s := newService("a", "10.0.0.1")
			if i < 3 { // the last one says nothing
				s.Annotations = map[string]string{AnnotationFastPath: strconv.FormatBool(wished)}
			}
			u.SetService(s)
		})
		if before := b.Snapshot(); !notified(b) || len(before.Node.Devices) != min(i, 1) {
			t.Fatal(before.Node.Devices)
		}
		for _, again := range []bool{false, true} {
			before := b.Snapshot()
			apply(b, func(u *Update) { u.SetDevices(map[string]int{"eth0": 2 + i}, i == 3) })
			if got := notified(b); got != (wished && !again) || (b.Snapshot() == before) != again || b.Snapshot().Node.Devices[0].Index != 2+i {
				t.Errorf("fast path %t, again %t: notified %t, devices %v", wished, again, got, b.Snapshot().Node.Devices)
			}
		}
	}
}

// TestSliceMoves moves slices between Services, and adds and deletes Services without their slices.
func TestSliceMoves(t *testing.T) {
	b := NewBuilder("n1")
	want := func(endpoints int, services ...string) {
		t.Helper()
		var got []string
		for name, service := range b.Snapshot().Services.All() {
			text := name.Name
			for _, slice := range service.Slices {
				text += fmt.Sprintf(" %s=%d", slice.Name, len(slice.Endpoints))
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(services, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if b.Endpoints() != endpoints {
			t.Errorf("%d endpoints, want %d", b.Endpoints(), endpoints)
		}
	}
	do := func(change func(*Update)) { apply(b, change) }
	do(func(u *Update) { u.SetEndpointSlice(newSlice("s", "a", "10.1.0.1", "10.1.0.2")) })
	want(2)
	do(func(u *Update) { u.SetService(newService("a", "10.0.0.1")); u.SetService(newService("b", "10.0.0.2")) })
	want(2, "a s=2", "b")
	do(func(u *Update) { u.SetEndpointSlice(newSlice("s", "b", "10.1.0.1", "10.1.0.2", "10.1.0.3")) })
	want(3, "a", "b s=3")
	do(func(u *Update) { u.DeleteService(ServiceName{"ns", "b"}) })
	want(3, "a")
	do(func(u *Update) { u.SetEndpointSlice(newSlice("r", "b", "10.1.0.9")) })
	do(func(u *Update) { u.SetService(newService("b", "10.0.0.3")) })
	want(4, "a", "b r=1 s=3")
	do(func(u *Update) { u.SetService(newService("b", "None")) }) // now headless
	want(4, "a")
	do(func(u *Update) { u.SetService(newService("b", "10.0.0.3")) })
	want(4, "a", "b r=1 s=3")
	do(func(u *Update) {
		s := newSlice("s", "b", "10.1.0.1")
		s.Labels[corev1.IsHeadlessService] = ""
		u.SetEndpointSlice(s)
	})
	want(1, "a", "b r=1")
	do(func(u *Update) { u.SetEndpointSlice(newSlice("r", "", "10.1.0.1")) })
	want(0, "a", "b")
}

// TestIterators checks the iterators of an Update while it is modified.
func TestIterators(t *testing.T) {
	b := NewBuilder("n1")
	for _, event := range history() {
		apply(b, event)
	}
	apply(b, func(u *Update) {
		services := slices.Collect(u.Services())
		if diff := cmp.Diff([]ServiceName{{"ns", "a"}, {"ns", "b"}}, services); diff != "" {
			t.Errorf("Services (-want +got):\n%s", diff)
		}
		for name, want := range map[string]int{"a": 4, "b": 0, "late": 0} { // late is not served
			if n := u.ServiceEndpoints(ServiceName{"ns", name}); n != want {
				t.Errorf("%d endpoints of the Service %s, want %d", n, name, want)
			}
		}
		endpoints := 0
		for _, name := range slices.Collect(u.EndpointSlices()) {
			endpoints += u.SliceEndpoints(name)
			u.DeleteEndpointSlice(name)
		}
		if endpoints != 5 || b.endpoints != 0 {
			t.Errorf("%d endpoints, and %d after their deletion", endpoints, b.endpoints)
		}
		for name := range u.Services() {
			u.DeleteService(name)
		}
		for range u.Services() {
			t.Error("Services returns a deleted one")
		}
		for name := range u.ServiceCIDRs() {
			u.DeleteServiceCIDR(name)
		}
		if n := u.ServiceEndpoints(ServiceName{"ns", "a"}) + u.SliceEndpoints(SliceName{"ns", "a-1"}); n != 0 {
			t.Errorf("%d endpoints of deleted objects", n)
		}
	})
	s := b.Snapshot()
	if s.Services.Len() != 0 || len(s.ServiceCIDRs) != 0 || len(b.orphans) != 0 || len(b.owners) != 0 {
		t.Errorf("left over: %s", describe(s))
	}
}

// TestProblemsAreStructured checks that Update returns Problems with all fields set.
func TestProblemsAreStructured(t *testing.T) {
	err := NewBuilder("n1").Update(func(u *Update) { u.SetServiceCIDR(newCIDR("x", "10.0.0.0/16", "y")) })
	var problem *Problem
	if !errors.As(err, &problem) {
		t.Fatalf("no Problem in %v", err)
	}
	if problem.Kind != "ServiceCIDR" || problem.Object != "x" || problem.Field != "spec.cidrs[1]" || problem.Err.Error() != `"y" is not a CIDR` {
		t.Errorf("%+v", problem)
	}
}

// TestUpdateCost checks that the cost of changing one slice does not depend on the size of the cluster.
func TestUpdateCost(t *testing.T) {
	cost := func(services int) float64 {
		o, b := newObjects(services, 2), NewBuilder("n1")
		o.all(b)
		slice, other := o.otherVersion(5)
		return testing.AllocsPerRun(20, func() {
			before := b.Snapshot()
			slice, other = other, slice
			apply(b, func(u *Update) { u.SetEndpointSlice(slice) })
			for range Changes(before.Services, b.Snapshot().Services) {
				continue
			}
		})
	}
	few, many := cost(10), cost(10000)
	t.Logf("allocations for a change among 10 Services: %v, among 10,000: %v", few, many)
	if many > few+80 {
		t.Errorf("a change among 10,000 Services allocates %v times, among 10 only %v times", many, few)
	}
}
