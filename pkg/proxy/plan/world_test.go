package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// The cluster of the tests. The node is node-1 in zone a, with pods in 10.1.0.0/24 and fd00:1::/64.
const (
	thisNode  = "node-1"
	clusterIP = "172.30.0.1"
	nodeIP    = "192.168.0.1"
	localPod  = "10.1.0.9"
	otherPod  = "10.2.0.9"
	outside   = "203.0.113.9"
	virtualIP = "198.51.100.1"
	extraIP   = "198.51.100.2"
	nodePort  = 30080
)

// world is a cluster with its plan.
type world struct {
	t       *testing.T
	builder *cluster.Builder
	options *Options
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, builder: cluster.NewBuilder(thisNode), options: &Options{
		NodePorts:        NodePortAddresses{Primary: true},
		LocalTraffic:     LocalTraffic{CIDRs: prefixes("10.1.0.0/24", "fd00:1::/64")},
		ServeExternalIPs: true,
	}}
	w.update(func(u *cluster.Update) {
		u.SetNode(node())
		u.SetInterfaces(addrs("127.0.0.1", "::1", nodeIP, "192.168.0.2", "fd00:9::1", "fd00:9::2"))
	})
	return w
}

func (w *world) update(change func(*cluster.Update)) {
	w.t.Helper()
	if err := w.builder.Update(change); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) plan() *Plan { return Compute(w.builder.Snapshot(), w.options, nil) }

// node returns node-1 with a change.
func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: thisNode, Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: nodeIP}, {Type: corev1.NodeInternalIP, Address: "fd00:9::1"},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

// service returns ns/web with changes: port 80 on a cluster IP, of type ClusterIP.
func service(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	s.Spec.Type = corev1.ServiceTypeClusterIP
	s.Spec.ClusterIP = clusterIP
	s.Spec.ClusterIPs = []string{clusterIP}
	s.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
	for _, c := range change {
		c(s)
	}
	return s
}

// everywhere adds an address of each kind to a Service.
func everywhere(s *corev1.Service) {
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.Ports[0].NodePort = nodePort
	s.Spec.ExternalIPs = []string{extraIP}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: virtualIP}}
}

func externalLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalLocal(s *corev1.Service) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	s.Spec.InternalTrafficPolicy = &local
}

// slice returns an EndpointSlice of ns/web for its port without a name. An endpoint is written as its address and
// its properties: here (on node-1), nowhere (without nodeName), draining (terminating and serving), leaving (terminating,
// serving not set), dead (terminating and not serving), unready, warming (serving and not ready), zone=a/b, node=node-1.
func slice(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	none, port, protocol := "", int32(8080), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &none, Port: &port, Protocol: &protocol}},
	}
	for _, text := range endpoints {
		if strings.Contains(strings.Fields(text)[0], ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		s.Endpoints = append(s.Endpoints, endpoint(text))
	}
	return s
}

func endpoint(text string) discoveryv1.Endpoint {
	words := strings.Fields(text)
	yes, no, here, elsewhere := true, false, thisNode, "node-2"
	e := discoveryv1.Endpoint{Addresses: words[:1], NodeName: &elsewhere, Hints: &discoveryv1.EndpointHints{}}
	e.Conditions = discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "here":
			e.NodeName = &here
		case "nowhere":
			e.NodeName = nil
		case "draining":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		case "leaving":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Terminating: &yes}
		case "dead":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
		case "unready":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
		case "warming":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &no}
		case "zone":
			for zone := range strings.SplitSeq(value, "/") {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
			}
		case "node":
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: value})
		default:
			panic("no such word for an endpoint: " + word)
		}
	}
	return e
}

// ask explains a packet from a source to an address and port. The source "node" is the node itself; packets of local
// pods arrive on veth0, all others on eth0. The result is the verdict, or for Balance the endpoints without their
// port, with * if masqueraded and "hairpin" if the source may be the endpoint.
func ask(p *Plan, source, to string) string {
	protocol := cluster.TCP
	if address, name, ok := strings.Cut(to, "/"); ok {
		to = address
		protocol = map[string]cluster.Protocol{"TCP": cluster.TCP, "UDP": cluster.UDP, "SCTP": cluster.SCTP}[name]
	}
	packet := Packet{To: netip.MustParseAddrPort(to), Protocol: protocol}
	switch {
	case source == "node" && packet.To.Addr().Is4():
		packet.Source = netip.MustParseAddr(nodeIP)
	case source == "node":
		packet.Source = netip.MustParseAddr("fd00:9::1")
	default:
		packet.Source = netip.MustParseAddr(source)
		packet.Interface = "eth0"
		if strings.HasPrefix(source, "10.1.") || strings.HasPrefix(source, "fd00:1:") {
			packet.Interface = "veth0"
		}
	}
	path := p.Explain(packet)
	var words []string
	if path.Verdict != Balance {
		words = append(words, path.Verdict.String())
	} else {
		for _, e := range path.Pool.Endpoints {
			words = append(words, e.Addr().String())
		}
	}
	if path.Masqueraded {
		words = append(words, "*")
	}
	if path.Hairpin.IsValid() {
		words = append(words, "hairpin")
	}
	return strings.Join(words, " ")
}

// routes returns the served frontends, sorted.
func routes(p *Plan) []string {
	var all []string
	for _, route := range p.Frontends.All() {
		all = append(all, fmt.Sprintf("%s %s of %s", route.Frontend, route.Kind, route.Name))
	}
	return all
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// created sets a Service's creation time, in hours since an arbitrary time.
func created(hour int) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC))
	}
}

// named renames a Service.
func named(name string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Name = name }
}

// on replaces a Service's cluster IPs.
func on(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = ips[0], slices.Clone(ips) }
}
