package cluster

import (
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// digested is a Service with a value in each field.
func digested() *Service {
	addr := func(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }
	return &Service{
		Name: ServiceName{"default", "web"}, UID: "1", Created: 1, ClusterIPs: addr("10.96.0.10"),
		Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80, NodePort: 30080}},
		External: &External{LoadBalancerIPs: addr("192.0.2.1"), Stray: addr("192.0.2.2"), ExternalIPs: addr("192.0.2.3"),
			SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
		InternalPolicy: PolicyLocal, ExternalPolicy: PolicyLocal, PreserveUDP: true, HealthCheckNodePort: 30081, Affinity: time.Hour, Algorithm: Maglev,
		Slices: []*EndpointSlice{{Name: "web-1", Ports: []EndpointPort{{Name: "http", Protocol: TCP, Port: 8080}}, Triggered: 1,
			Endpoints: []Endpoint{{Addr: addr("10.244.1.2")[0], Conditions: Ready | Serving | Local, Weight: WeightOf(50), Zones: newZones([]string{"a"})}}}},
	}
}

// TestDigest changes each field, which changes the digest unless nodes see it differently by design. The digest of a Service stays what it
// is, because proxies of two versions compare it.
func TestDigest(t *testing.T) {
	const frozen = uint64(0x161cf3bf42e8160d)
	before := digested().Digest()
	if before != frozen {
		t.Errorf("the digest is %#x, and was %#x: proxies of two versions disagree", before, frozen)
	}
	same := map[string]func(*Service){
		"UID":       func(s *Service) { s.UID = "2" },
		"created":   func(s *Service) { s.Created = 2 },
		"triggered": func(s *Service) { s.Slices[0].Triggered = 2 },
		"foreign":   func(s *Service) { s.Slices[0].Foreign = true },
		"local":     func(s *Service) { s.Slices[0].Endpoints[0].Conditions ^= Local },
		"this node": func(s *Service) { s.Slices[0].Endpoints[0].Conditions ^= ThisNode },
	}
	other := map[string]func(*Service){
		"name":       func(s *Service) { s.Name.Name = "wbe" },
		"namespace":  func(s *Service) { s.Name = ServiceName{"defaultw", "eb"} },
		"cluster IP": func(s *Service) { s.ClusterIPs = nil },
		"port name":  func(s *Service) { s.Ports[0].Name = "" },
		"protocol":   func(s *Service) { s.Ports[0].Protocol = UDP },
		"port":       func(s *Service) { s.Ports[0].Port++ },
		"node port":  func(s *Service) { s.Ports[0].NodePort++ },
		"external":   func(s *Service) { s.External = nil },
		"stray": func(s *Service) {
			s.External.Stray, s.External.ExternalIPs = nil, append(s.External.ExternalIPs, s.External.Stray...)
		},
		"range":         func(s *Service) { s.External.SourceRanges[0] = netip.MustParsePrefix("192.0.2.0/25") },
		"internal":      func(s *Service) { s.InternalPolicy = PolicyCluster },
		"policy":        func(s *Service) { s.ExternalPolicy = PolicyCluster },
		"UDP":           func(s *Service) { s.PreserveUDP = false },
		"fast path":     func(s *Service) { s.FastPath = new(true) },
		"no fast path":  func(s *Service) { s.FastPath = new(false) },
		"health check":  func(s *Service) { s.HealthCheckNodePort++ },
		"affinity":      func(s *Service) { s.Affinity++ },
		"algorithm":     func(s *Service) { s.Algorithm = SourceHash },
		"ignored":       func(s *Service) { s.Ignored = "unknown" },
		"no weights":    func(s *Service) { s.Slices[0].Ignored = "no number" },
		"bounds":        func(s *Service) { s.Fence = &AskedFence{Fence: Fence{Open: 1}} },
		"no bounds":     func(s *Service) { s.Fence = &AskedFence{Ignored: "invalid"} },
		"weight":        func(s *Service) { s.Slices[0].Endpoints[0].Weight++ },
		"slice":         func(s *Service) { s.Slices[0].Name = "web-2" },
		"no slice":      func(s *Service) { s.Slices = nil },
		"slice port":    func(s *Service) { s.Slices[0].Ports[0].Port++ },
		"endpoint":      func(s *Service) { s.Slices[0].Endpoints[0].Addr = netip.MustParseAddr("10.244.1.3") },
		"ready":         func(s *Service) { s.Slices[0].Endpoints[0].Conditions ^= Ready },
		"no node name":  func(s *Service) { s.Slices[0].Endpoints[0].Conditions ^= NoNodeName },
		"zones":         func(s *Service) { s.Slices[0].Endpoints[0].Zones = Zones{} },
		"one more":      func(s *Service) { s.Slices[0].Endpoints = append(s.Slices[0].Endpoints, s.Slices[0].Endpoints[0]) },
		"one more port": func(s *Service) { s.Ports = append(s.Ports, s.Ports[0]) },
	}
	for wanted, changes := range map[bool]map[string]func(*Service){true: same, false: other} {
		for name, change := range changes {
			s := digested()
			change(s)
			if got := s.Digest() == before; got != wanted {
				t.Errorf("%s: the same digest: %v", name, got)
			}
		}
	}
	for of, fields := range map[reflect.Type]int{
		reflect.TypeFor[Service](): 16, reflect.TypeFor[External](): 4, reflect.TypeFor[ServicePort](): 4,
		reflect.TypeFor[EndpointSlice](): 6, reflect.TypeFor[EndpointPort](): 3, reflect.TypeFor[Endpoint](): 4,
	} {
		if n := of.NumField(); n != fields {
			t.Errorf("%s has %d fields, not %d: is the new one a part of the digest?", of, n, fields)
		}
	}
}
