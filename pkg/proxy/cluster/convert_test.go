package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestServed checks which Services are never programmed.
func TestServed(t *testing.T) {
	tests := []struct {
		name   string
		change func(*corev1.Service)
		served bool
	}{
		{"ClusterIP", func(*corev1.Service) {}, true},
		{"headless", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }, false},
		{"without cluster IP", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil }, false},
		{"ExternalName that still has an address", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }, false},
		{"of another proxy", func(s *corev1.Service) { s.Labels = map[string]string{LabelServiceProxyName: "other"} }, false},
		{"of another proxy, whose name is empty", func(s *corev1.Service) { s.Labels = map[string]string{LabelServiceProxyName: ""} }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := NewBuilder("n1")
			problems := apply(b, func(u *Update) { u.SetService(newService("a", "10.0.0.1", test.change)) })
			if served := b.Snapshot().Services.Len() == 1; served != test.served || len(problems) > 0 {
				t.Errorf("served %v, want %v; problems %q", served, test.served, problems)
			}
		})
	}
}

// serviceTest is a change of a Service with the expected result.
type serviceTest struct {
	name     string
	change   func(*corev1.Service)
	get      func(*Service) any
	want     string
	problems []string
}

func checkServices(t *testing.T, tests []serviceTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := NewBuilder("n1")
			problems := apply(b, func(u *Update) { u.SetService(newService("a", "10.0.0.1", test.change)) })
			service, ok := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
			if !ok {
				t.Fatal("the Service is not served")
			}
			if got := fmt.Sprint(test.get(service)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			checkProblems(t, "Service ns/a: ", test.problems, problems)
		})
	}
}

// balanced returns a change to type LoadBalancer with these addresses in status.
func balanced(ingress ...corev1.LoadBalancerIngress) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, "192.0.2.99"
		s.Status.LoadBalancer.Ingress = ingress
	}
}

// TestServiceAddresses converts valid and invalid addresses of a Service.
func TestServiceAddresses(t *testing.T) {
	vip, proxy := corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy
	checkServices(t, []serviceTest{
		{"cluster IPs", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.0.0.1", "fd00::1"} },
			func(s *Service) any { return s.ClusterIPs }, "[10.0.0.1 fd00::1]", nil},
		{"cluster IP of an old server", func(s *corev1.Service) { s.Spec.ClusterIPs = nil },
			func(s *Service) any { return s.ClusterIPs }, "[10.0.0.1]", nil},
		{"leading zeros, as the API let pass", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"010.000.0.01"} },
			func(s *Service) any { return s.ClusterIPs }, "[10.0.0.1]", nil},
		{"IPv4 written as IPv6", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"::ffff:192.0.2.1", "192.0.2.1"} },
			func(s *Service) any { return s.ExternalIPs() }, "[192.0.2.1]", nil},
		{"bad cluster IP", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.0.0.1", "fd00::g"} },
			func(s *Service) any { return s.ClusterIPs }, "[10.0.0.1]", []string{`spec.clusterIPs[1]: "fd00::g" is not an IP address`}},
		{"external IPs", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.2", "x", "192.0.2.1", "192.0.2.2"} },
			func(s *Service) any { return s.ExternalIPs() }, "[192.0.2.2 192.0.2.1]", []string{`spec.externalIPs[1]: "x" is not an IP address`}},

		{"load balancer", balanced(corev1.LoadBalancerIngress{IP: "192.0.2.1"}, corev1.LoadBalancerIngress{IP: "2001:db8::1", IPMode: &vip},
			corev1.LoadBalancerIngress{IP: "192.0.2.2", IPMode: &proxy}, corev1.LoadBalancerIngress{Hostname: "lb.example.com"}),
			func(s *Service) any { return s.LoadBalancerIPs() }, "[192.0.2.1 2001:db8::1]", nil},
		{"bad ingress", balanced(corev1.LoadBalancerIngress{Hostname: "h"}, corev1.LoadBalancerIngress{IP: "y"}),
			func(s *Service) any { return s.LoadBalancerIPs() }, "[]", []string{`status.loadBalancer.ingress[1].ip: "y" is not an IP address`}},
		{"status of another type", func(s *corev1.Service) {
			balanced(corev1.LoadBalancerIngress{IP: "192.0.2.1"})(s)
			s.Spec.Type = corev1.ServiceTypeNodePort
		}, func(s *Service) any { return s.LoadBalancerIPs() }, "[]", nil},
	})
}

// TestServiceFields converts all other fields.
func TestServiceFields(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	seconds := func(n int32) *corev1.SessionAffinityConfig {
		return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &n}}
	}
	checkServices(t, []serviceTest{
		{"policies by default", func(*corev1.Service) {}, func(s *Service) any { return []Policy{s.InternalPolicy, s.ExternalPolicy} }, "[Cluster Cluster]", nil},
		{"internal policy", func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &local },
			func(s *Service) any { return []Policy{s.InternalPolicy, s.ExternalPolicy} }, "[Local Cluster]", nil},
		{"external policy of any type", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
			func(s *Service) any { return []Policy{s.InternalPolicy, s.ExternalPolicy} }, "[Cluster Local]", nil},

		{"no affinity", func(s *corev1.Service) { s.Spec.SessionAffinityConfig = seconds(5) }, func(s *Service) any { return s.Affinity }, "0s", nil},
		{"affinity by default", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			func(s *Service) any { return s.Affinity }, "3h0m0s", nil},
		{"affinity", func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityClientIP, seconds(86400)
		}, func(s *Service) any { return s.Affinity }, "24h0m0s", nil},
		{"affinity of no time", func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityClientIP, seconds(0)
		}, func(s *Service) any { return s.Affinity }, "3h0m0s", []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 is not between 1 and 86400; using 10800"}},

		{"source ranges", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.128/25", " 10.0.0.0/8 ", "10.1.2.3/8", "2001:db8::/32", "10.0.0.1"}
		}, func(s *Service) any { return s.SourceRanges() }, "[10.0.0.0/8 192.0.2.128/25 2001:db8::/32]", []string{`spec.loadBalancerSourceRanges[4]: "10.0.0.1" is not a CIDR`}},

		{"source ranges of IPv4 written as IPv6", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"::ffff:10.0.0.0/104", "::ffff:192.0.2.1/128"}
		}, func(s *Service) any { return s.SourceRanges() }, "[10.0.0.0/8 192.0.2.1/32]", nil},
		{"all of IPv4 written as IPv6", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"::ffff:0:0/96"} },
			func(s *Service) any { return s.SourceRanges() }, "[0.0.0.0/0]", nil},

		{"an unreadable source range may have been a family's only one", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"2001:db8::/32", "10.0.0.0/33"} },
			func(s *Service) any { return s.SourceRanges() }, "[0.0.0.0/32 2001:db8::/32]", []string{`spec.loadBalancerSourceRanges[1]: "10.0.0.0/33" is not a CIDR`}},
		{"invalid source ranges admit no source", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"x"} },
			func(s *Service) any { return s.SourceRanges() }, "[0.0.0.0/32 ::/128]", []string{`spec.loadBalancerSourceRanges[0]: "x" is not a CIDR`}},

		{"ports", func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Name: "b", Protocol: "UDP", Port: 53, NodePort: 30053}, {Name: "a", Protocol: "SCTP", Port: 65535}, {Name: "c", Port: 1}}
		}, func(s *Service) any { return s.Ports }, "[{b UDP 53 30053} {a SCTP 65535 0} {c TCP 1 0}]", nil},
		{"bad ports", func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Port: 0}, {Port: 65536}, {Port: -1}, {Port: 1, Protocol: "ICMP"}, {Port: 2, NodePort: 70000}}
		}, func(s *Service) any { return s.Ports }, "[{ TCP 2 0}]", []string{
			"spec.ports[0].port: 0 is not a port number", "spec.ports[1].port: 65536 is not a port number", "spec.ports[2].port: -1 is not a port number",
			`spec.ports[3].protocol: "ICMP" is not one of TCP, UDP and SCTP`, "spec.ports[4].nodePort: 70000 is not a port number"}},

		{"health check", func(s *corev1.Service) {
			balanced()(s)
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31000
		}, func(s *Service) any { return s.HealthCheckNodePort }, "31000", nil},
		{"health check of policy Cluster", func(s *corev1.Service) { balanced()(s); s.Spec.HealthCheckNodePort = 31000 },
			func(s *Service) any { return s.HealthCheckNodePort }, "0", nil},
		{"health check of another type", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31000
		}, func(s *Service) any { return s.HealthCheckNodePort }, "0", nil},
		{"identity", func(s *corev1.Service) { s.UID = "8f0c" }, func(s *Service) any { return s.UID }, "8f0c", nil},
		{"age", func(s *corev1.Service) { s.CreationTimestamp = metav1.Unix(1000, 0) }, func(s *Service) any { return s.Created }, "1000000000", nil},
	})
}

func checkProblems(t *testing.T, prefix string, want, got []string) {
	t.Helper()
	for i := range want {
		want[i] = prefix + want[i]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestOwner checks which slices are used, and for which Service.
func TestOwner(t *testing.T) {
	tests := []struct {
		name     string
		change   func(*discoveryv1.EndpointSlice)
		used     bool
		problems []string
	}{
		{"IPv4", func(*discoveryv1.EndpointSlice) {}, true, nil},
		{"headless", func(s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" }, false, nil},
		{"for another proxy", func(s *discoveryv1.EndpointSlice) { s.Labels[LabelServiceProxyName] = "other" }, true, nil},
		{"FQDN", func(s *discoveryv1.EndpointSlice) {
			s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeFQDN, []string{"a.example.com"}
		}, false, nil},
		{"no label", func(s *discoveryv1.EndpointSlice) { s.Labels = nil }, false, []string{"metadata.labels: it belongs to no Service; set the label kubernetes.io/service-name"}},
		{"empty label", func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "" }, false,
			[]string{"metadata.labels: it belongs to no Service; set the label kubernetes.io/service-name"}},
		{"unknown address type", func(s *discoveryv1.EndpointSlice) { s.AddressType = "IP" }, false, []string{`addressType: "IP" is not one of IPv4, IPv6 and FQDN`}},
		{"no address type", func(s *discoveryv1.EndpointSlice) { s.AddressType = "" }, false, []string{`addressType: "" is not one of IPv4, IPv6 and FQDN`}},
		{"of another namespace", func(s *discoveryv1.EndpointSlice) { s.Namespace = "other" }, false, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := NewBuilder("n1")
			s := newSlice("a-1", "a", "10.1.0.1")
			test.change(s)
			problems := apply(b, func(u *Update) {
				u.SetService(newService("a", "10.0.0.1"))
				u.SetEndpointSlice(s)
			})
			service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
			if used := len(service.Slices) == 1; used != test.used {
				t.Errorf("used %v, want %v", used, test.used)
			}
			checkProblems(t, "EndpointSlice ns/a-1: ", test.problems, problems)
		})
	}
}

// convertSlice returns the slice as the builder of node n1 converts it.
func convertSlice(t *testing.T, object *discoveryv1.EndpointSlice) (*EndpointSlice, []string) {
	t.Helper()
	b := NewBuilder("n1")
	problems := apply(b, func(u *Update) {
		u.SetService(newService("a", "10.0.0.1"))
		u.SetEndpointSlice(object)
	})
	service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
	if len(service.Slices) != 1 {
		t.Fatalf("%d slices, want 1; problems %q", len(service.Slices), problems)
	}
	return service.Slices[0], problems
}

// TestConditions checks the API's defaults for every combination of conditions.
func TestConditions(t *testing.T) {
	yes, no := true, false
	values := []*bool{nil, &no, &yes}
	for _, ready := range values {
		for _, serving := range values {
			for _, terminating := range values {
				s := newSlice("a-1", "a", "10.1.0.1")
				s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
				got, _ := convertSlice(t, s)
				isReady := ready == nil || *ready
				isServing := serving == nil || *serving
				c := got.Endpoints[0].Conditions
				if c.Has(Ready) != isReady || c.Has(Serving) != isServing || c.Has(Terminating) != (terminating == &yes) {
					t.Errorf("ready %v, serving %v, terminating %v became %03b", ready, serving, terminating, c)
				}
			}
		}
	}
}

// TestEndpoint converts an endpoint's node and hints.
func TestEndpoint(t *testing.T) {
	name := func(s string) *string { return &s }
	tests := []struct {
		name     string
		endpoint discoveryv1.Endpoint
		want     Conditions
		zones    string
	}{
		{"no node", discoveryv1.Endpoint{}, NoNodeName, "[]"},
		{"this node", discoveryv1.Endpoint{NodeName: name("n1")}, Local, "[]"},
		{"another node", discoveryv1.Endpoint{NodeName: name("n10")}, 0, "[]"},
		{"an empty name", discoveryv1.Endpoint{NodeName: name("")}, NoNodeName, "[]"},
		{"another case", discoveryv1.Endpoint{NodeName: name("N1")}, 0, "[]"},
		{"zones", discoveryv1.Endpoint{NodeName: name("n2"), Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z2"}, {Name: "z1"}, {Name: "z2"}}}}, 0, "[z1 z2]"},
		{"no hints", discoveryv1.Endpoint{NodeName: name("n2"), Hints: &discoveryv1.EndpointHints{}}, 0, "[]"},
		{"for this node", discoveryv1.Endpoint{NodeName: name("n2"), Hints: &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: "n2"}, {Name: "n1"}}}}, NodeHint | ThisNode, "[]"},
		{"for another node", discoveryv1.Endpoint{NodeName: name("n2"), Hints: &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: "n2"}}}}, NodeHint, "[]"},
		{"its own zone is no hint", discoveryv1.Endpoint{NodeName: name("n2"), Zone: name("z1")}, 0, "[]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newSlice("a-1", "a", "10.1.0.1")
			test.endpoint.Addresses = s.Endpoints[0].Addresses
			s.Endpoints[0] = test.endpoint
			got, problems := convertSlice(t, s)
			if c := got.Endpoints[0].Conditions &^ (Ready | Serving); c != test.want || len(problems) > 0 {
				t.Errorf("conditions %07b, want %07b; problems %q", c, test.want, problems)
			}
			zones := got.Endpoints[0].Zones.Names()
			if fmt.Sprint(zones) != test.zones {
				t.Errorf("zones %v, want %s", zones, test.zones)
			}
		})
	}
	t.Run("no node name", func(t *testing.T) {
		b := NewBuilder("")
		s := newSlice("a-1", "a", "10.1.0.1")
		s.Endpoints[0].NodeName = name("")
		apply(b, func(u *Update) { u.SetService(newService("a", "10.0.0.1")); u.SetEndpointSlice(s) })
		service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
		if service.Slices[0].Endpoints[0].Conditions.Has(Local) {
			t.Error("an endpoint without a node is local to a proxy without a name")
		}
	})
}

// TestAddresses parses an endpoint's first address and rejects addresses that no pod can have.
func TestAddresses(t *testing.T) {
	special := " is a loopback, link-local, multicast or unspecified address, which an endpoint must not have"
	tests := []struct {
		kind      discoveryv1.AddressType
		addresses []string
		want      string
		problems  string
	}{
		{"IPv4", []string{"10.1.0.1"}, "10.1.0.1", ""},
		{"IPv4", []string{"10.1.0.1", "nonsense"}, "10.1.0.1", ""},
		{"IPv6", []string{"fd00::1"}, "fd00::1", ""},
		{"IPv4", nil, "", ".addresses: it is empty"},
		{"IPv4", []string{""}, "", `.addresses[0]: "" is not an IP address`},
		{"IPv4", []string{"pod-1"}, "", `.addresses[0]: "pod-1" is not an IP address`},
		{"IPv6", []string{"fe80::1%eth0"}, "", `.addresses[0]: "fe80::1%eth0" is not an IP address`},
		{"IPv4", []string{"fd00::1"}, "", ".addresses[0]: fd00::1 is not of the slice's addressType IPv4"},
		{"IPv6", []string{"10.1.0.1"}, "", ".addresses[0]: 10.1.0.1 is not of the slice's addressType IPv6"},
		{"IPv6", []string{"::ffff:10.1.0.1"}, "", ".addresses[0]: 10.1.0.1 is not of the slice's addressType IPv6"},
		{"IPv4", []string{"127.0.0.1"}, "", ".addresses[0]: 127.0.0.1" + special},
		{"IPv4", []string{"169.254.169.254"}, "", ".addresses[0]: 169.254.169.254" + special},
		{"IPv4", []string{"224.0.0.1"}, "", ".addresses[0]: 224.0.0.1" + special},
		{"IPv4", []string{"0.0.0.0"}, "", ".addresses[0]: 0.0.0.0" + special},
		{"IPv6", []string{"::1"}, "", ".addresses[0]: ::1" + special},
		{"IPv6", []string{"fe80::1"}, "", ".addresses[0]: fe80::1" + special},
		{"IPv6", []string{"ff02::1"}, "", ".addresses[0]: ff02::1" + special},
		{"IPv6", []string{"::"}, "", ".addresses[0]: ::" + special},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.kind, test.addresses), func(t *testing.T) {
			good := map[discoveryv1.AddressType]string{"IPv4": "10.1.0.99", "IPv6": "fd00::99"}[test.kind]
			s := newSlice("a-1", "a", good)
			s.AddressType = test.kind
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: test.addresses})
			got, problems := convertSlice(t, s)
			want := strings.TrimSpace(good + " " + test.want)
			var addrs []string
			for _, e := range got.Endpoints {
				addrs = append(addrs, e.Addr.String())
			}
			if strings.Join(addrs, " ") != want {
				t.Errorf("endpoints %v, want %s: the others must be kept", addrs, want)
			}
			var wantProblems []string
			if test.problems != "" {
				wantProblems = []string{"EndpointSlice ns/a-1: endpoints[1]" + test.problems}
			}
			if diff := cmp.Diff(wantProblems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSlicePorts checks that invalid ports are left out, and that the others are sorted by name.
func TestSlicePorts(t *testing.T) {
	port := func(name string, number int32, protocol corev1.Protocol) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol}
	}
	nameless, numberless, plain := port("", 1, "TCP"), port("x", 1, "TCP"), port("p", 2, "TCP")
	nameless.Name, numberless.Port, plain.Protocol = nil, nil, nil
	s := newSlice("a-1", "a", "10.1.0.1")
	s.Ports = []discoveryv1.EndpointPort{port("web", 8080, "TCP"), nameless, numberless, port("zero", 0, "TCP"), port("big", 65536, "TCP"),
		port("odd", 1, "DCCP"), port("dns", 5353, "UDP"), port("", 9, "SCTP"), plain}
	got, problems := convertSlice(t, s)
	if text := fmt.Sprint(got.Ports); text != "[{ SCTP 9} {dns UDP 5353} {p TCP 2} {web TCP 8080}]" {
		t.Errorf("ports %s", text)
	}
	checkProblems(t, "EndpointSlice ns/a-1: ", []string{
		"ports[1]: it has no name or no port, so no Service can use it", "ports[2]: it has no name or no port, so no Service can use it",
		"ports[3].port: 0 is not a port number", "ports[4].port: 65536 is not a port number", `ports[5].protocol: "DCCP" is not one of TCP, UDP and SCTP`}, problems)
}

// TestLargeSlice converts a slice of 1,000 endpoints, the API's maximum, and several slices of a Service.
func TestLargeSlice(t *testing.T) {
	var addresses []string
	for i := range 1000 {
		addresses = append(addresses, fmt.Sprintf("10.1.%d.%d", i/250, i%250+1))
	}
	b := NewBuilder("n1")
	problems := apply(b, func(u *Update) {
		u.SetService(newService("a", "10.0.0.1"))
		u.SetEndpointSlice(newSlice("a-1", "a", addresses...))
		u.SetEndpointSlice(newSlice("a-2", "a", addresses[:500]...))
	})
	service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
	if len(problems) > 0 || b.Endpoints() != 1500 || len(service.Slices[0].Endpoints) != 1000 || len(service.Slices[1].Endpoints) != 500 {
		t.Errorf("%d endpoints; problems %q", b.Endpoints(), problems)
	}
}

// TestTriggered parses the time of the last pod change.
func TestTriggered(t *testing.T) {
	want := time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.UTC)
	for text, wantProblems := range map[string][]string{
		"2026-01-02T03:04:05.678Z": nil,
		"yesterday":                {`metadata.annotations.endpoints.kubernetes.io/last-change-trigger-time: "yesterday" is not an RFC 3339 time`},
	} {
		s := newSlice("a-1", "a", "10.1.0.1")
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: text}
		got, problems := convertSlice(t, s)
		if (got.Triggered == want.UnixMicro()) != (wantProblems == nil) || wantProblems != nil && got.Triggered != 0 {
			t.Errorf("%s became %v", text, got.Triggered)
		}
		checkProblems(t, "EndpointSlice ns/a-1: ", wantProblems, problems)
	}
}

// TestNode converts only this node's object.
func TestNode(t *testing.T) {
	node := newNode("n1")
	node.Labels = map[string]string{corev1.LabelTopologyZone: "z1"}
	node.Spec.PodCIDRs = []string{"10.1.0.0/24", "fd00:1::/64", "bad"}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "n1"},
		{Type: corev1.NodeInternalIP, Address: "10.9.0.2"}, {Type: corev1.NodeInternalIP, Address: "x"},
		{Type: corev1.NodeInternalIP, Address: "10.9.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::9"}}
	b := NewBuilder("n1")
	problems := apply(b, func(u *Update) { u.SetNode(node); u.SetNode(newNode("n2", "192.0.2.9")) })
	checkProblems(t, "Node n1: ", []string{`spec.podCIDRs[2]: "bad" is not a CIDR`, `status.addresses[3].address: "x" is not an IP address`}, problems)
	want := "{Name:n1 Exists:true UID: Addresses:[10.9.0.2 fd00::9] Interfaces:[] Devices:[] PodCIDRs:[10.1.0.0/24 fd00:1::/64] Zone:z1 Draining:false}"
	if got := fmt.Sprintf("%+v", *b.Snapshot().Node); got != want {
		t.Errorf("node\n%s\nwant\n%s", got, want)
	}

	node.Status.Addresses = node.Status.Addresses[:2]
	apply(b, func(u *Update) { u.SetNode(node) })
	if got := fmt.Sprint(b.Snapshot().Node.Addresses); got != "[192.0.2.1]" {
		t.Errorf("addresses without an InternalIP: %s", got)
	}
	again := newNode("n1")
	apply(b, func(u *Update) { u.DeleteNode(); u.SetNode(again) })
	if got := fmt.Sprintf("%v %v", b.Snapshot().Node.Addresses, b.Snapshot().Node.PodCIDRs); got != "[192.0.2.1] [10.1.0.0/24 fd00:1::/64]" {
		t.Errorf("created again without addresses and pod CIDRs, it has %s", got)
	}
	again.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "2001:db8::7"},
		{Type: corev1.NodeExternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeInternalIP, Address: "10.9.0.7"}}
	apply(b, func(u *Update) { u.SetNode(again) })
	if got := fmt.Sprint(b.Snapshot().Node.Addresses); got != "[10.9.0.7 2001:db8::7]" {
		t.Errorf("an InternalIP and ExternalIPs: %s", got)
	}

	drains := map[string]func(u *Update){
		"taint": func(u *Update) {
			n := newNode("n1")
			n.Spec.Taints = []corev1.Taint{{Key: taintToBeDeleted}}
			u.SetNode(n)
		},
		"being deleted": func(u *Update) {
			n := newNode("n1")
			n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			u.SetNode(n)
		},
		"gone": func(u *Update) { u.DeleteNode() },
	}
	for name, drain := range drains {
		apply(b, func(u *Update) { u.SetNode(newNode("n1")) })
		if b.Snapshot().Node.Draining {
			t.Error("a healthy node is draining")
		}
		apply(b, drain)
		if !b.Snapshot().Node.Draining {
			t.Errorf("%s: the node is not draining", name)
		}
		if exists := b.Snapshot().Node.Exists; exists != (name != "gone") {
			t.Errorf("%s: the node exists: %t", name, exists)
		}
	}
}

// TestNodeAddressesOverride checks that configured addresses replace those of their family.
func TestNodeAddressesOverride(t *testing.T) {
	for given, want := range map[string]string{
		"192.0.2.9":             "[192.0.2.9 fd00::9]",
		"2001:db8::9":           "[2001:db8::9 10.9.0.1]",
		"2001:db8::9 192.0.2.9": "[2001:db8::9 192.0.2.9]",
	} {
		var addrs []netip.Addr
		for text := range strings.FieldsSeq(given) {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		b := NewBuilder("n1", addrs...)
		if got := b.Snapshot().Node; fmt.Sprint(got.Addresses) != fmt.Sprint(addrs) || got.Exists {
			t.Errorf("%s: without a Node object: %+v", given, got)
		}
		apply(b, func(u *Update) { u.SetNode(newNode("n1", "10.9.0.1", "10.9.0.2", "fd00::9")) })
		if got := fmt.Sprint(b.Snapshot().Node.Addresses); got != want {
			t.Errorf("%s: got %s, want %s", given, got, want)
		}
		apply(b, func(u *Update) { u.DeleteNode(); u.SetNode(newNode("n1")) })
		if got := fmt.Sprint(b.Snapshot().Node.Addresses); got != want {
			t.Errorf("%s: created again without addresses, it has %s, want %s", given, got, want)
		}
	}
}

// TestServiceCIDRs merges the ranges of all objects.
func TestServiceCIDRs(t *testing.T) {
	b := NewBuilder("n1")
	apply(b, func(u *Update) {
		u.SetServiceCIDR(newCIDR("b", "10.96.0.0/16", "fd00::/112"))
		u.SetServiceCIDR(newCIDR("a", "10.96.0.0/16", "10.0.0.0/24"))
	})
	texts := func() (all []string) {
		for _, cidr := range b.Snapshot().ServiceCIDRs {
			all = append(all, cidr.String())
		}
		return all
	}
	if got := texts(); !slices.Equal(got, []string{"10.0.0.0/24", "10.96.0.0/16", "fd00::/112"}) {
		t.Errorf("%v", got)
	}
	apply(b, func(u *Update) { u.DeleteServiceCIDR("b") })
	if got := texts(); !slices.Equal(got, []string{"10.0.0.0/24", "10.96.0.0/16"}) {
		t.Errorf("without b: %v", got)
	}
}

// TestPreserveUDP reads the annotation of Services about UDP flows.
func TestPreserveUDP(t *testing.T) {
	for text, test := range map[string]struct {
		want     bool
		problems []string
	}{
		"Default":                   {false, nil},
		"PreserveDuringTermination": {true, nil},
		"preserve":                  {false, []string{`metadata.annotations[service.kubernetes.io/udp-connection-handling]: "preserve" is not one of Default and PreserveDuringTermination`}},
	} {
		b := NewBuilder("n1")
		problems := apply(b, func(u *Update) {
			s := newService("a", "10.0.0.1")
			s.Annotations = map[string]string{AnnotationUDPConnectionHandling: text}
			u.SetService(s)
		})
		service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
		if service.PreserveUDP != test.want {
			t.Errorf("%s became %t", text, service.PreserveUDP)
		}
		checkProblems(t, "Service ns/a: ", test.problems, problems)
	}
}

// TestFastPath reads the annotation of Services about the fast path.
func TestFastPath(t *testing.T) {
	for text, test := range map[string]struct {
		want     *bool
		problems []string
	}{
		"":      {nil, nil},
		"true":  {new(true), nil},
		"false": {new(false), nil},
		"yes":   {nil, []string{`metadata.annotations[kube-proxy/fast-path]: "yes" is neither true nor false`}},
	} {
		b := NewBuilder("n1")
		problems := apply(b, func(u *Update) {
			s := newService("a", "10.0.0.1")
			s.Annotations = map[string]string{AnnotationFastPath: text}
			u.SetService(s)
		})
		service, _ := b.Snapshot().Services.Get(ServiceName{"ns", "a"})
		if !ptr.Equal(service.FastPath, test.want) {
			t.Errorf("%s became %v", text, service.FastPath)
		}
		checkProblems(t, "Service ns/a: ", test.problems, problems)
	}
}
