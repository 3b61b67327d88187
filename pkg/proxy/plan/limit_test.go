package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// wide returns a Service with numbered ports, and slices that have all of these ports and the same number of endpoints each.
func wide(ports, slices, endpoints int) *cluster.Service {
	s := &cluster.Service{Name: cluster.ServiceName{Namespace: "ns", Name: "wide"}, ClusterIPs: addrs("172.30.0.1")}
	for i := range slices {
		s.Slices = append(s.Slices, manyEndpoints(i*endpoints, endpoints))
		s.Slices[i].Name, s.Slices[i].Ports = fmt.Sprintf("s%05d", i), nil
	}
	for i := range ports {
		name := fmt.Sprintf("p%05d", i) // sorted, as the ports of a slice are
		s.Ports = append(s.Ports, cluster.ServicePort{Name: name, Protocol: cluster.UDP, Port: uint16(1 + i)})
		for _, slice := range s.Slices {
			slice.Ports = append(slice.Ports, cluster.EndpointPort{Name: name, Protocol: cluster.UDP, Port: uint16(1 + i)})
		}
	}
	return s
}

func snapshotOf(services ...*cluster.Service) *cluster.Snapshot {
	all := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()
	for _, s := range services {
		all.Set(s.Name, s)
	}
	return &cluster.Snapshot{Services: all.Map(), Node: &cluster.Node{Name: thisNode}}
}

// limited returns the options of a mode with a limit.
func limited() *Options { return &Options{Limits: Limits{Elements: 1_000_000}, ServeExternalIPs: true} }

// TestOversized checks that a Service needs a limited number of elements, whatever its author wrote, that the ports before
// the first one that does not fit are served, and that other Services are.
func TestOversized(t *testing.T) {
	other := wide(1, 1, 1)
	other.Name.Name, other.ClusterIPs = "other", addrs("172.30.0.2")
	ranges := func(s *cluster.Service) {
		s.External = &cluster.External{LoadBalancerIPs: addrs("198.51.100.1")}
		for i := range 100_000 {
			s.External.SourceRanges = append(s.External.SourceRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
		}
	}
	external := func(s *cluster.Service) {
		s.External = &cluster.External{}
		for i := range 50_000 {
			s.External.ExternalIPs = append(s.External.ExternalIPs, netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
	}
	otherFamily := func(s *cluster.Service) { s.ClusterIPs = addrs("fd00:30::1") }
	none := func(*cluster.Service) {}
	for _, test := range []struct {
		name                     string
		ports, slices, endpoints int
		with                     func(*cluster.Service)
		served                   int
	}{
		{"one port, 100,000 endpoints", 1, 100, 1000, none, 1},
		{"one port, 100,000 endpoints in as many slices", 1, 100_000, 1, none, 1},
		{"10,000 ports", 10_000, 1, 2, none, 10_000},
		{"10,000 ports, 2,000 endpoints", 10_000, 2, 1000, none, 499}, // 2 slices and 2001 elements each
		{"1,200 ports, 1,000 slices without endpoints", 1200, 1000, 0, none, 1_000_000 / 1001},
		{"9,900 ports, 100,000 endpoints of another family", 9900, 100, 1000, otherFamily, 1_000_000 / 100_101},
		{"one port, too many endpoints", 1, 1001, 1000, none, 0},
		{"20 ports, 100,000 source ranges", 20, 1, 1, ranges, 9},
		{"10,000 ports, 50,000 external IPs", 10_000, 1, 10, external, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := wide(test.ports, test.slices, test.endpoints)
			test.with(s)
			opts := limited()
			p := Compute(snapshotOf(s, other), opts, nil)
			decided, _ := p.Services.Get(s.Name)
			ports, elements := map[string]bool{}, 0
			for _, route := range decided.Routes {
				ports[route.Port()] = true
				elements += len(route.Pool.Endpoints) + len(route.SourceRanges)
			}
			if len(ports) != test.served || int(decided.WithheldPorts) != test.ports-test.served {
				t.Errorf("%d ports are served and %d are not, want %d of %d", len(ports), decided.WithheldPorts, test.served, test.ports)
			}
			if last := test.served - 1; last >= 0 && !ports[s.Ports[last].Name] {
				t.Errorf("the first ports are not those that are served")
			}
			if elements > opts.Limits.Elements {
				t.Errorf("%d elements, the limit is %d", elements, opts.Limits.Elements)
			}
			if p.RouteTo(netip.MustParseAddrPort("172.30.0.2:1"), cluster.UDP) == nil {
				t.Error("the other Service is not served")
			}
			if said := Reasons(p.Problems(decided.Name, nil))[ProblemTooLarge]; said != (test.served < test.ports) {
				t.Errorf("a problem mentions ports that are not served: %v", said)
			}
		})
	}
}

// TestWithheldPortsReturn checks that a Service that shrinks is served whole again.
func TestWithheldPortsReturn(t *testing.T) {
	opts := limited()
	large := Compute(snapshotOf(wide(10, 200, 1000)), opts, nil)
	small := Compute(snapshotOf(wide(10, 2, 1000)), opts, large)
	for p, want := range map[*Plan]int{large: 4, small: 10} {
		if got := p.Frontends.Len(); got != want {
			t.Errorf("%d frontends, want %d", got, want)
		}
	}
}

// TestMissingPortsAreFew checks that the text about slices that lack very many ports is short. Their author chooses both.
func TestMissingPortsAreFew(t *testing.T) {
	s := wide(10_000, 10, 1)
	for i := range s.Ports {
		s.Ports[i].Name += "x"
	}
	p := Compute(snapshotOf(s), &Options{}, nil)
	text := strings.Join(missing(p, s.Name), "\n")
	if len(text) > 10_000 || !strings.HasPrefix(text, "EndpointSlice ns/s00000 has no port p00000x/UDP; it has p00000/UDP, p00001/UDP") ||
		!strings.Contains(text, "and 9995 more") {
		t.Errorf("%d bytes: %.1000s", len(text), text)
	}
}

// TestLimitIsExact checks both sides of the limit: two ports with a slice, a frontend and four endpoints each.
func TestLimitIsExact(t *testing.T) {
	for limit, want := range map[int]int{12: 2, 11: 1, 6: 1, 5: 0} {
		p := Compute(snapshotOf(wide(2, 1, 4)), &Options{Limits: Limits{Elements: limit}}, nil)
		if got := p.Frontends.Len(); got != want {
			t.Errorf("limit %d: %d ports are served, want %d", limit, got, want)
		}
	}
}

// TestSharedEndpoints checks that endpoints which the frontends of a port share count once, and the limit of the endpoints of a port.
func TestSharedEndpoints(t *testing.T) {
	s := wide(2, 1, 4)
	s.External = &cluster.External{LoadBalancerIPs: addrs("198.51.100.1", "198.51.100.2"), SourceRanges: prefixes("fd00::/64", "fd00:1::/64")}
	for limits, want := range map[Limits]int{
		{Elements: 39}: 3, {Elements: 40}: 6, // for each port the slice, three frontends with four endpoints, and two with two ranges
		{Elements: 23, EndpointsShared: true}: 3, {Elements: 24, EndpointsShared: true}: 6,
		{Elements: 100, Endpoints: 3}: 0, {Elements: 100, Endpoints: 4}: 6,
		{Elements: 100, SourceRanges: 1}: 0, {Elements: 100, SourceRanges: 2}: 6,
	} {
		if got := Compute(snapshotOf(s), &Options{Limits: limits}, nil).Frontends.Len(); got != want {
			t.Errorf("%+v: %d frontends, want %d", limits, got, want)
		}
	}
}

// TestEndpointsThatNeedMoreRules counts endpoints by what they need where the frontends of a port share their rules.
func TestEndpointsThatNeedMoreRules(t *testing.T) {
	for _, test := range []struct {
		conditions cluster.Conditions
		pods       []netip.Prefix // of the node
		affinity   time.Duration
		elements   int // of each port: the slice, the frontend and what four endpoints need
	}{
		{0, nil, 0, 1 + 1 + 4}, {cluster.Local, nil, 0, 1 + 1 + 4*4}, {cluster.NoNodeName, nil, 0, 1 + 1 + 4*4},
		{0, prefixes("10.0.0.0/24"), 0, 1 + 1 + 4*4}, {0, nil, time.Hour, 1 + 1 + 4*2}, {cluster.Local, nil, time.Hour, 1 + 1 + 4*5},
	} {
		s := wide(2, 1, 4)
		s.Affinity = test.affinity
		for i := range s.Slices[0].Endpoints {
			s.Slices[0].Endpoints[i].Conditions |= test.conditions
		}
		for limit, want := range map[int]int{2*test.elements - 1: 1, 2 * test.elements: 2} {
			opts, snapshot := &Options{Limits: Limits{Elements: limit, EndpointsShared: true}}, snapshotOf(s)
			snapshot.Node.PodCIDRs = test.pods
			if got := Compute(snapshot, opts, nil).Frontends.Len(); got != want {
				t.Errorf("%+v, limit %d: %d frontends, want %d", test, limit, got, want)
			}
		}
	}
}

// TestOwnClusterIPIsNoEndpoint lists a Service's own cluster IP among its endpoints, alone and beside others.
func TestOwnClusterIPIsNoEndpoint(t *testing.T) {
	for _, others := range []int{0, 3} {
		s := wide(1, 1, others)
		s.Slices[0].Endpoints = append(s.Slices[0].Endpoints, cluster.Endpoint{Addr: s.ClusterIPs[0], Conditions: cluster.Ready | cluster.Serving})
		for f, route := range Compute(snapshotOf(s), &Options{}, nil).Frontends.All() {
			if got := len(route.Pool.Endpoints); got != others {
				t.Errorf("%v: %d endpoints, want %d", f, got, others)
			}
		}
	}
}

// TestMissingPortsOfServedOnly checks that nothing is said about the slices of ports that are not served.
func TestMissingPortsOfServedOnly(t *testing.T) {
	s := wide(3, 1, 4)
	for i := range s.Ports {
		s.Ports[i].Name += "x"
	}
	p := Compute(snapshotOf(s), &Options{Limits: Limits{Elements: 4}}, nil) // without endpoints, a port has two elements
	if got := len(missing(p, s.Name)); got != 2 {
		t.Errorf("%d sentences, want 2", got)
	}
}

// TestSingleStack serves the primary family only, and both until it is known.
func TestSingleStack(t *testing.T) {
	s := wide(1, 1, 1)
	s.ClusterIPs = addrs("172.30.0.1", "fd00:30::1")
	for _, test := range []struct {
		single    bool
		addresses []netip.Addr
		want      int
	}{{true, addrs("192.168.0.1", "fd00:9::1"), 1}, {true, addrs("fd00:9::1"), 1}, {true, nil, 2}, {false, addrs("192.168.0.1"), 2}} {
		snap := snapshotOf(s)
		snap.Node = &cluster.Node{Name: thisNode, Addresses: test.addresses}
		p := Compute(snap, &Options{SingleStack: test.single}, nil)
		if got := p.Frontends.Len(); got != test.want {
			t.Errorf("%+v: %d frontends", test, got)
		}
		for frontend := range p.Frontends.All() {
			if test.want == 1 && frontend.Family() != cluster.FamilyOf(test.addresses[0]) {
				t.Errorf("%+v: %s is served", test, frontend)
			}
		}
	}
}

// TestFamiliesServed serves what this node can, of what the policy wants, and an explanation says so. A Service without anything else has a
// problem.
func TestFamiliesServed(t *testing.T) {
	s := wide(1, 1, 1)
	s.ClusterIPs = addrs("172.30.0.1", "fd00:30::1")
	for _, test := range []struct {
		families []cluster.Family
		single   bool
		want     int
	}{{nil, false, 2}, {[]cluster.Family{cluster.IPv4}, false, 1}, {[]cluster.Family{cluster.IPv4}, true, 0}} {
		snap := snapshotOf(s)
		snap.Node = &cluster.Node{Name: thisNode, Addresses: addrs("fd00:9::1")}
		p := Compute(snap, &Options{Families: test.families, SingleStack: test.single}, nil)
		path := p.Explain(Packet{Source: netip.MustParseAddr("fd00:9::9"), To: netip.MustParseAddrPort("[fd00:30::1]:80"), Protocol: cluster.TCP})
		if got, says := p.Frontends.Len(), path.Why == "IPv6 is not served on this node"; got != test.want || says != (test.families != nil) {
			t.Errorf("%+v: %d frontends, %q", test, got, path.Why)
		}
		if found := Reasons(p.Problems(s.Name, nil)); found[ProblemFamilyNotServed] != (test.want == 0) {
			t.Errorf("%+v: problems %v", test, found)
		}
	}
}

// TestLocalhostRejects lists all combinations that reject, and the others.
func TestLocalhostRejects(t *testing.T) {
	tcp, udp := Frontend{cluster.IPv4.Unspecified(), cluster.TCP, 30000}, Frontend{cluster.IPv4.Unspecified(), cluster.UDP, 30000}
	for _, test := range []struct {
		localhost Localhost
		tcp, udp  bool
	}{
		{Localhost{}, false, false},
		{Localhost{Reject: true}, true, true},
		{Localhost{Reject: true, Forwarded: []cluster.Family{cluster.IPv4}}, false, true},
		{Localhost{Reject: true, Forwarded: []cluster.Family{cluster.IPv6}}, true, true},
		{Localhost{Forwarded: []cluster.Family{cluster.IPv4}}, false, false},
	} {
		if got := test.localhost.rejects(tcp); got != test.tcp {
			t.Errorf("%+v: TCP: %v", test.localhost, got)
		}
		if got := test.localhost.rejects(udp); got != test.udp {
			t.Errorf("%+v: UDP: %v", test.localhost, got)
		}
	}
}

// missing returns the messages about slices without ports.
func missing(p *Plan, name cluster.ServiceName) (messages []string) {
	for _, problem := range p.Problems(name, nil) {
		if problem.Reason == ProblemNoSuchPort {
			messages = append(messages, problem.Message)
		}
	}
	return messages
}
