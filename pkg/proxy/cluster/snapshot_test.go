package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestPortOf finds the ports of a slice, of any number and in any order. If a name is listed twice, the first one counts.
func TestPortOf(t *testing.T) {
	b := NewBuilder("n1")
	object := newSlice("s", "a", "10.1.0.1")
	object.Ports = nil
	for i, name := range []string{"x", "b", "", "b", "a"} {
		port, protocol := int32(i+1), corev1.ProtocolTCP
		object.Ports = append(object.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &protocol})
	}
	udp := corev1.ProtocolUDP
	object.Ports = append(object.Ports, discoveryv1.EndpointPort{Name: object.Ports[0].Name, Port: object.Ports[0].Port, Protocol: &udp})
	apply(b, func(u *Update) { u.SetService(newService("a", "10.0.0.1")); u.SetEndpointSlice(object) })
	service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
	got := map[string]uint16{}
	for _, name := range []string{"x", "b", "", "a", "c"} {
		for _, protocol := range []Protocol{TCP, UDP} {
			port, ok := service.Slices[0].PortOf(&ServicePort{Name: name, Protocol: protocol})
			if ok {
				got[name+"/"+protocol.String()] = port.Port
			}
		}
	}
	want := map[string]uint16{"x/TCP": 1, "x/UDP": 1, "b/TCP": 2, "/TCP": 3, "a/TCP": 5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.IsSortedFunc(service.Slices[0].Ports, EndpointPort.compare) {
		t.Errorf("not sorted: %v", service.Slices[0].Ports)
	}
}

// TestZonesAreComparable checks that equal sets of zones are equal by ==.
func TestZonesAreComparable(t *testing.T) {
	s := newSlice("a-1", "a", "10.1.0.1", "10.1.0.2", "10.1.0.3")
	for i, zones := range [][]string{{"z1", "z2"}, {"z2", "z1"}, {"z1"}} {
		s.Endpoints[i].Hints = &discoveryv1.EndpointHints{}
		for _, zone := range zones {
			s.Endpoints[i].Hints.ForZones = append(s.Endpoints[i].Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
	}
	got, _ := convertSlice(t, s)
	e := got.Endpoints
	if e[0].Zones != e[1].Zones || e[0].Zones == e[2].Zones {
		t.Error("equal sets differ, or different sets are equal")
	}
	if !e[0].Zones.Has("z2") || e[2].Zones.Has("z2") || (Zones{}).Has("z1") || (Zones{}).Any() || !e[2].Zones.Any() {
		t.Error("Has is wrong")
	}
}

// TestFamilies asks a Service and a node for addresses of each family.
func TestFamilies(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, addrs := range [][]netip.Addr{nil, {four}, {six}, {four, six}, {six, four}} {
		service, node := &Service{ClusterIPs: addrs}, &Node{Addresses: addrs}
		for family, addr := range map[Family]netip.Addr{IPv4: four, IPv6: six} {
			has := slices.Contains(addrs, addr)
			if service.InFamily(family) != has {
				t.Errorf("a Service with the cluster IPs %v is in %s: %t", addrs, family, !has)
			}
			if got, ok := node.Address(family); ok != has || has && got != addr {
				t.Errorf("the %s address of a node with %v: %v, %t", family, addrs, got, ok)
			}
		}
		primary, known := node.Primary()
		if known != (len(addrs) > 0) || known && primary != FamilyOf(addrs[0]) {
			t.Errorf("the primary family of a node with %v: %s, %t", addrs, primary, known)
		}
	}
}

// TestStrings checks the String methods.
func TestStrings(t *testing.T) {
	got := fmt.Sprint(PolicyCluster, PolicyLocal, TCP, UDP, SCTP, Protocol(1), IPv4, IPv6, ServiceName{"a", "b"}, SliceName{"c", "d"})
	if want := "Cluster Local TCP UDP SCTP unknown IPv4 IPv6 a/b c/d"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if text, err := json.Marshal([]Family{IPv4, IPv6}); err != nil || string(text) != `["IPv4","IPv6"]` {
		t.Errorf("families in JSON: %s, %v", text, err)
	}
}
