package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestHealthCheckFamilies counts the ready endpoints on this node in each family of the Service.
func TestHealthCheckFamilies(t *testing.T) {
	for _, test := range []struct {
		name       string
		clusterIPs []string
		endpoints  []string
		want       map[cluster.Family]int
	}{
		{"both families", []string{clusterIP, "fd00:30::1"}, []string{"10.1.0.1 here", "10.1.0.2 here", "fd00:1::1 here"},
			map[cluster.Family]int{cluster.IPv4: 2, cluster.IPv6: 1}},
		{"endpoints of one family only", []string{clusterIP, "fd00:30::1"}, []string{"10.1.0.1 here", "fd00:2::1"},
			map[cluster.Family]int{cluster.IPv4: 1, cluster.IPv6: 0}},
		{"only IPv6", []string{"fd00:30::1"}, []string{"10.1.0.1 here", "fd00:1::1 here"}, map[cluster.Family]int{cluster.IPv6: 1}},
		{"none is ready", []string{clusterIP}, []string{"10.1.0.1 here draining", "10.1.0.2 here leaving"}, map[cluster.Family]int{cluster.IPv4: 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.update(func(u *cluster.Update) {
				u.SetService(service(everywhere, externalLocal, func(s *corev1.Service) {
					s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.HealthCheckNodePort = test.clusterIPs[0], test.clusterIPs, 31000
				}))
				for i, e := range test.endpoints {
					u.SetEndpointSlice(slice(fmt.Sprint("s", i), e))
				}
			})
			s, _ := w.plan().Services.Get(cluster.ServiceName{Namespace: "ns", Name: "web"})
			if diff := cmp.Diff(test.want, s.HealthCheck.LocalEndpoints); diff != "" {
				t.Errorf("local endpoints (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHealthCheckCountsTraffic checks that endpoints which get no traffic are not counted: a pod that lacks the named port, and those of a
// family that the node does not serve.
func TestHealthCheckCountsTraffic(t *testing.T) {
	local := func(addr string) []cluster.Endpoint {
		return []cluster.Endpoint{{Addr: netip.MustParseAddr(addr), Conditions: cluster.Ready | cluster.Serving | cluster.Local}}
	}
	ports := []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 8080}}
	s := &cluster.Service{Name: cluster.ServiceName{Namespace: "ns", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr(clusterIP), netip.MustParseAddr("fd00:30::1")},
		HealthCheckNodePort: 31000, Ports: []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}}, Slices: []*cluster.EndpointSlice{
			{Name: "served", Ports: ports, Endpoints: local("10.1.0.1")},
			{Name: "without the port", Endpoints: local("10.1.0.2")},
			{Name: "other family", Ports: ports, Endpoints: local("fd00:1::1")},
		}}
	node := &cluster.Node{Name: "n", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	for singleStack, want := range map[bool]map[cluster.Family]int{
		false: {cluster.IPv4: 1, cluster.IPv6: 1},
		true:  {cluster.IPv4: 1},
	} {
		decided := decide(s, node, &Options{SingleStack: singleStack}, nil)
		if diff := cmp.Diff(want, decided.HealthCheck.LocalEndpoints); diff != "" {
			t.Errorf("single stack %t: local endpoints (-want +got):\n%s", singleStack, diff)
		}
	}
}

// TestEverywhere checks in which families node ports are served on all addresses.
func TestEverywhere(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, test := range []struct {
		name       string
		sel        NodePortAddresses
		ipv4, ipv6 bool
	}{
		{"nothing selected", NodePortAddresses{}, true, true},
		{"primary", NodePortAddresses{Primary: true}, false, false},
		{"a range of one family", NodePortAddresses{CIDRs: []netip.Prefix{prefix("192.0.2.0/24")}}, false, true},
		{"all addresses of one family", NodePortAddresses{CIDRs: []netip.Prefix{prefix("::/0"), prefix("192.0.2.0/24")}}, false, true},
		{"primary and all of one family", NodePortAddresses{Primary: true, CIDRs: []netip.Prefix{prefix("0.0.0.0/0")}}, true, false},
	} {
		if ipv4, ipv6 := test.sel.Everywhere(cluster.IPv4), test.sel.Everywhere(cluster.IPv6); ipv4 != test.ipv4 || ipv6 != test.ipv6 {
			t.Errorf("%s: IPv4 %v, IPv6 %v; want %v, %v", test.name, ipv4, ipv6, test.ipv4, test.ipv6)
		}
	}
}
