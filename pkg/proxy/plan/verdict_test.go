package plan

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestAddresses checks the addresses on which each type of Service is served.
func TestAddresses(t *testing.T) {
	proxyMode := corev1.LoadBalancerIPModeProxy
	vipMode := corev1.LoadBalancerIPModeVIP
	for _, test := range []struct {
		name   string
		change []func(*corev1.Service)
		option func(*Options)
		want   []string
	}{
		{"ClusterIP", nil, nil, []string{"172.30.0.1:80/TCP cluster IP of ns/web"}},
		{"every kind", []func(*corev1.Service){everywhere}, nil, []string{
			"0.0.0.0:30080/TCP node port of ns/web", "172.30.0.1:80/TCP cluster IP of ns/web",
			"198.51.100.1:80/TCP load balancer IP of ns/web", "198.51.100.2:80/TCP external IP of ns/web",
		}},
		{"external IPs gated", []func(*corev1.Service){everywhere}, func(o *Options) { o.ServeExternalIPs = false }, []string{
			"0.0.0.0:30080/TCP node port of ns/web", "172.30.0.1:80/TCP cluster IP of ns/web",
			"198.51.100.1:80/TCP load balancer IP of ns/web",
		}},
		{"dual stack, several ports and protocols", []func(*corev1.Service){on(clusterIP, "fd00:30::1"), func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53},
				{Name: "signal", Protocol: corev1.ProtocolSCTP, Port: 7},
			}
		}}, nil, []string{
			"0.0.0.0:30053/UDP node port of ns/web:dns",
			"172.30.0.1:53/TCP cluster IP of ns/web:dns-tcp", "172.30.0.1:53/UDP cluster IP of ns/web:dns",
			"172.30.0.1:7/SCTP cluster IP of ns/web:signal",
			"[::]:30053/UDP node port of ns/web:dns",
			"[fd00:30::1]:53/TCP cluster IP of ns/web:dns-tcp", "[fd00:30::1]:53/UDP cluster IP of ns/web:dns",
			"[fd00:30::1]:7/SCTP cluster IP of ns/web:signal",
		}},
		{"ipMode", []func(*corev1.Service){func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
				{IP: "198.51.100.3", IPMode: &vipMode}, {IP: "198.51.100.4", IPMode: &proxyMode}, {Hostname: "example.com"},
			}
		}}, nil, []string{
			"172.30.0.1:80/TCP cluster IP of ns/web", "198.51.100.3:80/TCP load balancer IP of ns/web",
		}},
		{"a load balancer IP that is an external IP too", []func(*corev1.Service){everywhere, func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{virtualIP}
		}}, nil, []string{
			"0.0.0.0:30080/TCP node port of ns/web", "172.30.0.1:80/TCP cluster IP of ns/web",
			"198.51.100.1:80/TCP load balancer IP of ns/web",
		}},
		{"headless", []func(*corev1.Service){on(corev1.ClusterIPNone)}, nil, nil},
		{"ExternalName", []func(*corev1.Service){func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }}, nil, nil},
		{"unspecified, loopback and multicast addresses never match", []func(*corev1.Service){func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"0.0.0.0", "::", "127.0.0.1", "::1", "224.0.0.1", "ff02::1"}
		}}, nil, []string{"172.30.0.1:80/TCP cluster IP of ns/web"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			if test.option != nil {
				test.option(w.options)
			}
			w.update(func(u *cluster.Update) {
				u.SetService(service(test.change...))
				u.SetEndpointSlice(slice("s", otherPod))
			})
			if diff := cmp.Diff(test.want, routes(w.plan())); diff != "" {
				t.Errorf("frontends (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVerdicts checks what happens to connections from each kind of source, under each policy.
func TestVerdicts(t *testing.T) {
	const a, b, c = "10.1.0.1", "10.1.0.2", "10.2.0.1"
	for _, test := range []struct {
		name      string
		change    func(*corev1.Service)
		endpoints []string
		// Connections to the cluster IP from a local pod and from outside; to a load balancer IP from outside,
		// from a local pod, and from the node itself.
		podToCluster, worldToCluster, worldToVIP, podToVIP, nodeToVIP string
	}{
		{"all ready", nil, []string{a + " here", c}, a + " " + c, a + " " + c + " *", a + " " + c + " *", a + " " + c + " *", a + " " + c + " *"},
		{"only some ready", nil, []string{a + " here unready", b + " here draining", c}, c, c + " *", c + " *", c + " *", c + " *"},
		{"none ready, one draining", nil, []string{a + " here unready", b + " here draining"}, b, b + " *", b + " *", b + " *", b + " *"},
		{"none usable", nil, []string{a + " here unready", b + " here dead"}, "reject", "reject", "reject", "reject", "reject"},
		{"one serving, but neither ready nor draining", nil, []string{a + " here warming"}, "reject", "reject", "reject", "reject", "reject"},
		{"none at all", nil, nil, "reject", "reject", "reject", "reject", "reject"},

		{"external Local, here and there", externalLocal, []string{a + " here", c}, a + " " + c, a + " " + c + " *", a, a + " " + c, a + " " + c + " *"},
		{"external Local, only there", externalLocal, []string{c}, c, c + " *", "drop", c, c + " *"},
		{"external Local, here draining", externalLocal, []string{a + " here draining", c}, c, c + " *", a, c, c + " *"},
		{"external Local, here dead", externalLocal, []string{a + " here dead", c}, c, c + " *", "drop", c, c + " *"},
		{"external Local, only there draining", externalLocal, []string{c + " draining"}, c, c + " *", "drop", c, c + " *"},
		{"external Local, ready beats draining", externalLocal, []string{a + " here", b + " here draining"}, a, a + " *", a, a, a + " *"},
		{"external Local, none usable", externalLocal, []string{a + " here dead"}, "reject", "reject", "reject", "reject", "reject"},

		{"internal Local, here and there", internalLocal, []string{a + " here", c}, a, a + " *", a + " " + c + " *", a + " " + c + " *", a + " " + c + " *"},
		{"internal Local, only there", internalLocal, []string{c}, "drop", "drop", c + " *", c + " *", c + " *"},
		{"internal Local, here draining", internalLocal, []string{a + " here draining", c}, a, a + " *", c + " *", c + " *", c + " *"},
		{"internal Local, none usable there", internalLocal, []string{a + " here warming", c + " unready"}, "reject", "reject", "reject", "reject", "reject"},
		{"internal Local, none usable", internalLocal, nil, "reject", "reject", "reject", "reject", "reject"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.update(func(u *cluster.Update) {
				s := service(everywhere)
				if test.change != nil {
					test.change(s)
				}
				u.SetService(s)
				u.SetEndpointSlice(slice("s", test.endpoints...))
			})
			p := w.plan()
			for _, packet := range []struct{ from, to, want string }{
				{localPod, clusterIP + ":80", test.podToCluster},
				{outside, clusterIP + ":80", test.worldToCluster},
				{outside, virtualIP + ":80", test.worldToVIP},
				{outside, extraIP + ":80", test.worldToVIP},
				{outside, nodeIP + ":30080", test.worldToVIP},
				{otherPod, nodeIP + ":30080", test.worldToVIP},
				{localPod, virtualIP + ":80", test.podToVIP},
				{localPod, nodeIP + ":30080", test.podToVIP},
				{"node", virtualIP + ":80", test.nodeToVIP},
				{"node", nodeIP + ":30080", test.nodeToVIP},
			} {
				if got := ask(p, packet.from, packet.to); got != packet.want {
					t.Errorf("from %s to %s: got %q, want %q", packet.from, packet.to, got, packet.want)
				}
			}
		})
	}
}

// TestReasons checks the reason of each decision, in the words of Explain.
func TestReasons(t *testing.T) {
	for _, test := range []struct {
		change     func(*corev1.Service)
		endpoints  []string
		from, want string
	}{
		{nil, []string{"10.2.0.1"}, outside, "all ready endpoints"},
		{nil, []string{"10.2.0.1 draining"}, outside, "no endpoint is ready: those that still serve while terminating"},
		{nil, nil, outside, "no usable endpoint"},
		{nil, []string{"10.2.0.1 zone=a"}, outside, "the ready endpoints hinted for this zone"},
		{nil, []string{"10.2.0.1 node=node-1"}, outside, "the ready endpoints hinted for this node"},
		{externalLocal, []string{"10.1.0.1 here"}, outside, "the ready endpoints on this node"},
		{externalLocal, []string{"10.1.0.1 here draining"}, outside, "no endpoint on this node is ready: those that still serve while terminating"},
		{externalLocal, []string{"10.2.0.1"}, outside, "no usable endpoint on this node"},
		{externalLocal, []string{"10.2.0.1"}, localPod, "local traffic needs no local endpoint: all ready endpoints"},
	} {
		w := newWorld(t)
		w.update(func(u *cluster.Update) {
			s := service(everywhere)
			if test.change != nil {
				test.change(s)
			}
			u.SetService(s)
			u.SetEndpointSlice(slice("s", test.endpoints...))
		})
		path := w.plan().Explain(Packet{
			Source: netip.MustParseAddr(test.from), Interface: "eth0",
			To: netip.MustParseAddrPort(virtualIP + ":80"), Protocol: cluster.TCP,
		})
		if path.Why != test.want {
			t.Errorf("%v from %s: got %q, want %q", test.endpoints, test.from, path.Why, test.want)
		}
	}
}

// TestTopology checks that hints apply only to ready endpoints under policy Cluster.
func TestTopology(t *testing.T) {
	const a, b, c = "10.2.0.1", "10.2.0.2", "10.2.0.3"
	for _, test := range []struct {
		name      string
		zone      string
		change    func(*corev1.Service)
		endpoints []string
		want      string
	}{
		{"all for zones, one for ours", "a", nil, []string{a + " zone=a", b + " zone=b"}, a},
		{"one for several zones", "b", nil, []string{a + " zone=a/b", b + " zone=b", c + " zone=c"}, a + " " + b},
		{"none for ours", "c", nil, []string{a + " zone=a", b + " zone=b"}, a + " " + b},
		{"one without a hint", "a", nil, []string{a + " zone=a", b}, a + " " + b},
		{"an unready one without a hint", "a", nil, []string{a + " zone=a", b + " zone=b", c + " unready"}, a},
		{"the node has no zone", "", nil, []string{a + " zone=a", b + " zone=b"}, a + " " + b},
		{"for this node", "a", nil, []string{a + " node=node-1", b + " node=node-2"}, a},
		{"for other nodes", "a", nil, []string{a + " node=node-2", b + " node=node-2"}, a + " " + b},
		{"node before zone", "a", nil, []string{a + " node=node-1 zone=b", b + " node=node-2 zone=a"}, a},
		{"zone where no node fits", "a", nil, []string{a + " node=node-2 zone=a", b + " node=node-3 zone=b"}, a},
		{"one without a node", "a", nil, []string{a + " node=node-1 zone=b", b + " zone=a"}, b},
		{"none ready: hints do not apply", "a", nil, []string{a + " draining zone=a", b + " draining zone=b"}, a + " " + b},
		{"internal Local ignores hints", "a", internalLocal, []string{a + " here zone=b", b + " zone=a"}, a},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.update(func(u *cluster.Update) {
				u.SetNode(node(func(n *corev1.Node) {
					n.Labels = nil
					if test.zone != "" {
						n.Labels = map[string]string{corev1.LabelTopologyZone: test.zone}
					}
				}))
				s := service()
				if test.change != nil {
					test.change(s)
				}
				u.SetService(s)
				u.SetEndpointSlice(slice("s", test.endpoints...))
			})
			if got := ask(w.plan(), localPod, clusterIP+":80"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestEndpoints checks the conversion of slices to pools.
func TestEndpoints(t *testing.T) {
	w := newWorld(t)
	want := func(name, expected string) {
		t.Helper()
		if got := ask(w.plan(), localPod, clusterIP+":80"); got != expected {
			t.Errorf("%s: got %q, want %q", name, got, expected)
		}
	}
	w.update(func(u *cluster.Update) {
		u.SetService(service())
		u.SetEndpointSlice(slice("s1", "10.2.0.2", "10.2.0.1"))
		u.SetEndpointSlice(slice("s2", "10.2.0.10", "10.2.0.1"))
	})
	want("each once and sorted", "10.2.0.1 10.2.0.2 10.2.0.10")
	w.update(func(u *cluster.Update) { u.SetEndpointSlice(slice("s1", "10.2.0.1 dead", "10.2.0.2 draining")) })
	want("an address of a dead pod and of a live one", "10.2.0.1 10.2.0.10")
	w.update(func(u *cluster.Update) {
		u.SetService(service(internalLocal))
		u.SetEndpointSlice(slice("s1", "10.2.0.1 here", "10.2.0.3 here"))
	})
	want("listed as local and as remote", "10.2.0.1 10.2.0.3")
	w.update(func(u *cluster.Update) {
		u.SetService(service(func(s *corev1.Service) { s.Spec.Ports[0].Name = "http" }))
	})
	want("no slice has a port of that name", "reject")
	named := slice("s3", "10.2.0.5")
	http, metrics, other := "http", "metrics", int32(9090)
	named.Ports[0].Name = &http
	named.Ports = append(named.Ports, named.Ports[0])
	named.Ports[0].Name, named.Ports[0].Port = &metrics, &other
	w.update(func(u *cluster.Update) { u.SetEndpointSlice(named) })
	want("a slice with several ports", "10.2.0.5")
	route, ok := w.plan().Frontends.Get(Frontend{netip.MustParseAddr(clusterIP), cluster.TCP, 80})
	if !ok || route.Pool.Endpoints[0].Port() != 8080 {
		t.Errorf("the endpoint's port is not that of the name: %v", route)
	}
}

// TestFamilies checks that an endpoint serves addresses of its own family.
func TestFamilies(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service(on(clusterIP, "fd00:30::1"), everywhere))
		u.SetEndpointSlice(slice("four", "10.2.0.1"))
	})
	p := w.plan()
	for _, test := range []struct{ from, to, want string }{
		{localPod, clusterIP + ":80", "10.2.0.1"},
		{"fd00:1::9", "[fd00:30::1]:80", "reject"},
		{outside, nodeIP + ":30080", "10.2.0.1 *"},
		{"2001:db8::9", "[fd00:9::1]:30080", "reject"},
	} {
		if got := ask(p, test.from, test.to); got != test.want {
			t.Errorf("from %s to %s: got %q, want %q", test.from, test.to, got, test.want)
		}
	}
	w.update(func(u *cluster.Update) { u.SetEndpointSlice(slice("six", "fd00:2::1")) })
	if got := ask(w.plan(), "fd00:1::9", "[fd00:30::1]:80"); got != "fd00:2::1" {
		t.Errorf("got %q", got)
	}
	w.update(func(u *cluster.Update) { u.SetService(service(everywhere)) }) // single stack again
	if got := ask(w.plan(), "2001:db8::9", "[fd00:9::1]:30080"); got != "pass" {
		t.Errorf("a node port without a cluster IP of its family: got %q, want pass", got)
	}
}

// TestSourceRanges checks that source ranges restrict only load balancer IPs.
func TestSourceRanges(t *testing.T) {
	const e = "10.2.0.1"
	for _, test := range []struct {
		name   string
		ranges []string
		// From outside, from the node, and from outside with the VIP itself as source.
		world, node, vip string
	}{
		{"none", nil, e + " *", e + " *", e + " *"},
		{"within", []string{"203.0.113.0/24"}, e + " *", "drop", "drop"},
		{"within the second, padded", []string{"192.0.2.0/24", " 203.0.113.0/24 "}, e + " *", "drop", "drop"},
		{"without", []string{"192.0.2.0/24"}, "drop", "drop", "drop"},
		{"the node's own address", []string{"192.168.0.0/24"}, "drop", e + " *", e + " *"},
		{"only the other family", []string{"2001:db8::/32"}, e + " *", e + " *", e + " *"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.update(func(u *cluster.Update) {
				u.SetService(service(everywhere, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = test.ranges }))
				u.SetEndpointSlice(slice("s", e))
			})
			p := w.plan()
			for _, packet := range []struct{ from, to, want string }{
				{outside, virtualIP + ":80", test.world},
				{"node", virtualIP + ":80", test.node},
				{virtualIP, virtualIP + ":80", test.vip},
				{outside, extraIP + ":80", e + " *"},
				{outside, nodeIP + ":30080", e + " *"},
				{outside, clusterIP + ":80", e + " *"},
			} {
				if got := ask(p, packet.from, packet.to); got != packet.want {
					t.Errorf("from %s to %s: got %q, want %q", packet.from, packet.to, got, packet.want)
				}
			}
		})
	}
}

// TestSourceRangesBeforeReject checks that a source that is not allowed cannot detect whether there are endpoints.
func TestSourceRangesBeforeReject(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service(everywhere, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }))
	})
	p := w.plan()
	if got := ask(p, outside, virtualIP+":80"); got != "drop" {
		t.Errorf("from outside the ranges: got %q, want drop", got)
	}
	if got := ask(p, "192.0.2.1", virtualIP+":80"); got != "reject" {
		t.Errorf("from within the ranges: got %q, want reject", got)
	}
}

// TestMasquerade checks each way to detect local traffic, for connections to a cluster IP.
func TestMasquerade(t *testing.T) {
	const e = "10.2.0.1"
	for _, test := range []struct {
		name             string
		option           func(*Options)
		pod, world, node string
	}{
		{"by CIDR", nil, e, e + " *", e + " *"},
		{"no detection", func(o *Options) { o.LocalTraffic = LocalTraffic{} }, e, e, e},
		{"a CIDR of the other family", func(o *Options) { o.LocalTraffic.CIDRs = prefixes("fd00:1::/64") }, e, e, e},
		{"by the node's own CIDR", func(o *Options) { o.LocalTraffic, o.NodeCIDR = LocalTraffic{}, true }, e, e + " *", e + " *"},
		{"by interface", func(o *Options) { o.LocalTraffic = LocalTraffic{Interface: "veth0"} }, e, e + " *", e + " *"},
		{"by another interface", func(o *Options) { o.LocalTraffic = LocalTraffic{Interface: "veth"} }, e + " *", e + " *", e + " *"},
		{"by prefix of interfaces", func(o *Options) { o.LocalTraffic = LocalTraffic{Interface: "ve*"} }, e, e + " *", e + " *"},
		{"by any interface", func(o *Options) { o.LocalTraffic = LocalTraffic{Interface: "*"} }, e, e, e + " *"},
		{"all sources", func(o *Options) { o.MasqueradeAll = true }, e + " *", e + " *", e + " *"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			if test.option != nil {
				test.option(w.options)
			}
			w.update(func(u *cluster.Update) {
				u.SetNode(node(func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.1.0.0/24"} }))
				u.SetService(service())
				u.SetEndpointSlice(slice("s", e))
			})
			p := w.plan()
			for _, packet := range []struct{ from, want string }{{localPod, test.pod}, {outside, test.world}, {"node", test.node}} {
				if got := ask(p, packet.from, clusterIP+":80"); got != packet.want {
					t.Errorf("from %s: got %q, want %q", packet.from, got, packet.want)
				}
			}
		})
	}
}

// TestHairpin checks that an endpoint that is local, or may be, can reach itself through its Service.
func TestHairpin(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service())
		u.SetEndpointSlice(slice("s", "10.1.0.1 here", "10.1.0.2 here draining", "10.1.0.3 here dead", "10.2.0.1", "10.2.0.2 nowhere"))
	})
	p := w.plan()
	for from, want := range map[string]string{
		"10.1.0.1": "10.1.0.1 10.2.0.1 10.2.0.2 hairpin",
		"10.1.0.2": "10.1.0.1 10.2.0.1 10.2.0.2 hairpin",
		"10.1.0.3": "10.1.0.1 10.2.0.1 10.2.0.2",
		"10.1.0.9": "10.1.0.1 10.2.0.1 10.2.0.2",
		"10.2.0.1": "10.1.0.1 10.2.0.1 10.2.0.2 *",
		"10.2.0.2": "10.1.0.1 10.2.0.1 10.2.0.2 * hairpin",
	} {
		if got := ask(p, from, clusterIP+":80"); got != want {
			t.Errorf("from %s: got %q, want %q", from, got, want)
		}
	}
	w.update(func(u *cluster.Update) { u.SetService(service(named("empty"), on("172.30.0.2"))) })
	if got := ask(w.plan(), "10.1.0.1", "172.30.0.2:80"); got != "reject" {
		t.Errorf("a rejected connection is a hairpin: got %q", got)
	}
	if n := w.plan().Hairpins.Len(); n != 3 {
		t.Errorf("%d hairpins, want 3: none for an endpoint on another node", n)
	}
	w.update(func(u *cluster.Update) { u.SetEndpointSlice(slice("s", "10.1.0.1", "10.2.0.1")) })
	if n := w.plan().Hairpins.Len(); n != 0 {
		t.Errorf("%d hairpins without a local endpoint", n)
	}
	before := w.plan()
	w.update(func(u *cluster.Update) {
		u.SetNode(node(func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.1.0.0/24", "fd00:1::/64"} }))
	})
	p = Compute(w.builder.Snapshot(), w.options, before)
	if _, is := p.Hairpins.Get(netip.MustParseAddr("10.1.0.1")); !is || p.Hairpins.Len() != 1 {
		t.Errorf("%d hairpins, want the endpoint that names another node and has an address of this node's pods", p.Hairpins.Len())
	}
}

// TestNodePortsElsewhere checks that an address that this machine does not have serves no node port, unless no address of the
// machine is known.
func TestNodePortsElsewhere(t *testing.T) {
	sel := NodePortAddresses{Primary: true}
	for _, test := range []struct{ interfaces, want []netip.Addr }{
		{addrs("192.168.0.1", "fd00:9::1"), addrs("fd00:9::1")},
		{addrs("192.168.0.9", "fd00:9::1"), addrs("192.168.0.9", "fd00:9::1")},
		{nil, addrs("192.168.0.9", "fd00:9::1")},
	} {
		node := &cluster.Node{Addresses: addrs("192.168.0.9", "fd00:9::1"), Interfaces: test.interfaces}
		if got := slices.Concat(sel.of(node, cluster.IPv4), sel.of(node, cluster.IPv6)); !slices.Equal(got, test.want) {
			t.Errorf("on a machine with %v: %v, want %v", test.interfaces, got, test.want)
		}
		if sel.Unrestricted(node, cluster.IPv4) {
			t.Errorf("on a machine with %v node ports are served on all addresses", test.interfaces)
		}
	}
}

// TestNodePortAddresses checks the addresses on which node ports are served.
func TestNodePortAddresses(t *testing.T) {
	for _, test := range []struct {
		name string
		sel  NodePortAddresses
		want []netip.Addr
	}{
		{"all by default", NodePortAddresses{}, addrs("192.168.0.1", "192.168.0.2", "fd00:9::1", "fd00:9::2")},
		{"all with loopback", NodePortAddresses{Loopback: true}, addrs("127.0.0.1", "192.168.0.1", "192.168.0.2", "fd00:9::1", "fd00:9::2")},
		{"primary", NodePortAddresses{Primary: true}, addrs("192.168.0.1", "fd00:9::1")},
		{"a CIDR of each family", NodePortAddresses{CIDRs: prefixes("192.168.0.2/32", "fd00:9::2/128")}, addrs("192.168.0.2", "fd00:9::2")},
		{"a CIDR of one family", NodePortAddresses{CIDRs: prefixes("192.168.0.2/32")}, addrs("192.168.0.2", "fd00:9::1", "fd00:9::2")},
		{"a CIDR without an address of this machine", NodePortAddresses{CIDRs: prefixes("10.0.0.0/8", "::/0")}, addrs("fd00:9::1", "fd00:9::2")},
		{"primary and a CIDR", NodePortAddresses{Primary: true, CIDRs: prefixes("192.168.0.2/32")}, addrs("192.168.0.1", "192.168.0.2", "fd00:9::1")},
		{"loopback that cannot be served", NodePortAddresses{CIDRs: prefixes("127.0.0.0/8", "::1/128")}, nil},
		{"loopback that can", NodePortAddresses{CIDRs: prefixes("127.0.0.0/8", "::1/128"), Loopback: true}, addrs("127.0.0.1")},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.options.NodePorts = test.sel
			if diff := cmp.Diff(test.want, w.plan().Node.NodePortAddrs, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnrouted checks packets without a route.
func TestUnrouted(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service(everywhere))
		u.SetEndpointSlice(slice("s", "10.2.0.1"))
		u.SetServiceCIDR(&networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"172.30.0.0/16"}},
		})
	})
	p := w.plan()
	for to, want := range map[string]string{
		clusterIP + ":81":     "reject",
		clusterIP + ":80/UDP": "reject",
		"172.30.9.9:80":       "drop",
		"172.31.0.1:80":       "pass",
		virtualIP + ":81":     "pass",
		nodeIP + ":22":        "pass",
		"192.168.0.2:30080":   "pass", // an address without node ports
	} {
		if got := ask(p, localPod, to); got != want {
			t.Errorf("to %s: got %q, want %q", to, got, want)
		}
	}
}

// TestServiceFields checks the other fields of a Service.
func TestServiceFields(t *testing.T) {
	w := newWorld(t)
	w.options.ServeExternalIPs = false
	timeout := int32(60)
	w.update(func(u *cluster.Update) {
		u.SetService(service(everywhere, externalLocal, func(s *corev1.Service) {
			s.Spec.HealthCheckNodePort = 31000
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
		}))
		u.SetEndpointSlice(slice("four", "10.1.0.1 here", "10.1.0.2 here", "10.1.0.3 here draining", "10.2.0.1"))
		u.SetEndpointSlice(slice("four-again", "10.1.0.1 here"))
		u.SetEndpointSlice(slice("six", "fd00:1::1 here"))
	})
	p := w.plan()
	s, _ := p.Services.Get(cluster.ServiceName{Namespace: "ns", Name: "web"})
	// Without an IPv6 cluster IP there is no IPv6 health check, regardless of the endpoints.
	if diff := cmp.Diff(&HealthCheck{Port: 31000, LocalEndpoints: map[cluster.Family]int{cluster.IPv4: 2}}, s.HealthCheck); diff != "" {
		t.Errorf("health check (-want +got):\n%s", diff)
	}
	if s.WithheldExternalIPs != 1 {
		t.Errorf("withheld external IPs: got %d, want 1", s.WithheldExternalIPs)
	}
	for route := range p.Frontends.Values() {
		if route.Affinity.For() != time.Minute {
			t.Errorf("affinity of %s: got %s, want 1m", route.Frontend, route.Affinity.For())
		}
	}
}

// TestClusterCIDR checks that a cluster CIDR is a problem only if pods of this node are endpoints, and none of them is in it.
func TestClusterCIDR(t *testing.T) {
	for _, test := range []struct {
		endpoints []string
		problems  int
	}{
		{nil, 0},
		{[]string{"10.3.0.9 here"}, 1},
		{[]string{"10.3.0.9 here", localPod + " here"}, 0},
		{[]string{nodeIP + " here", otherPod, "10.3.0.9"}, 0}, // a pod in the host's network, and pods of other nodes
		{[]string{"10.3.0.9 nowhere"}, 0},                     // the API server, whose slice names no node
	} {
		w := newWorld(t)
		w.update(func(u *cluster.Update) {
			u.SetService(service())
			u.SetEndpointSlice(slice("four", test.endpoints...))
		})
		if got := w.plan().NodeProblems(); len(got) != test.problems {
			t.Errorf("endpoints %q: %+v, want %d problems", test.endpoints, got, test.problems)
		}
	}
}
