package hostile

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Mark is a word that every hostile string contains: it must never be the name of anything in the kernel.
const Mark = "pwned"

// Strings are hostile strings: syntax of nft, iptables, shells, terminals, HTML, formats and labels; names of our own chains
// and of other Services; and invalid UTF-8.
func Strings() []string {
	return []string{
		`pwned"; flush ruleset; #`,
		`pwned" : drop } ; add table ip pwned ; add element ip kube-proxy services { 0.0.0.0`,
		"pwned\nCOMMIT\n*filter\n:pwned - [0:0]\n-I FORWARD -j DROP\nCOMMIT\n",
		"pwned\" -j DROP\n-A KUBE-SERVICES -j DROP",
		"-j pwned",
		"! pwned",
		"KUBE-SERVICES pwned",
		"victim/web:http pwned",
		"$(touch pwned) `touch pwned` ; touch pwned",
		"\x1b]0;pwned\x07\x1b[2J\x1b[31mpwned",
		"\u202epwned\u2066\u200b",
		"<script>pwned</script>",
		`pwned\","x":"`,
		"pwned%s%n%d%!s(PANIC",
		"pwned\x00pwned",
		"pwned\xff\xfe\xc3(",
		"pwned\r\nI0101 00:00:00.000000 1 proxy.go:1] \"pwned\"",
		"pwned" + strings.Repeat("x", 253-len("pwned")),
		"pwned" + strings.Repeat("ü", 5000),
	}
}

// Attack is a set of objects.
type Attack struct {
	Name string
	// Objects returns the objects in a family. Their slices are of that family.
	Objects func(family cluster.Family) []runtime.Object
	// Large means that the attack is the number of objects, which takes seconds to plan and to program.
	Large bool
}

// Attacks returns all attacks. Each works without the others.
func Attacks() []Attack {
	return []Attack{
		{Name: "strings", Objects: hostileStrings},
		{Name: "ten thousand ports", Objects: func(f cluster.Family) []runtime.Object { return wide(f, 10_000, 1, 1) }, Large: true},
		{Name: "a hundred thousand endpoints", Objects: func(f cluster.Family) []runtime.Object { return wide(f, 1, 100, 1000) }, Large: true},
		{Name: "ports times endpoints", Objects: func(f cluster.Family) []runtime.Object { return wide(f, 10_000, 100, 1000) }, Large: true},
		{Name: "contradicting slices", Objects: contradictions},
		{Name: "endpoints that are not pods", Objects: endpoints},
		{Name: "addresses of other Services", Objects: claims},
		{Name: "invalid addresses", Objects: invalid},
	}
}

// address returns an address in the attacker's part of the lab's ranges.
func address(f cluster.Family, v4, v6 string) string {
	if f == cluster.IPv6 {
		return v6
	}
	return v4
}

// clusterIP returns the nth of the attacker's cluster IPs.
func clusterIP(f cluster.Family, n int) string {
	return address(f, fmt.Sprintf("10.96.66.%d", n), fmt.Sprintf("fd00:10:96::66:%x", n))
}

// pod is the only endpoint of most attacks: pod2b.
func pod(f cluster.Family) string { return address(f, "10.244.2.3", "fd00:10:244:2::3") }

func newService(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "mallory", Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: ip, ClusterIPs: []string{ip},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}},
	}
}

func newSlice(f cluster.Family, name, service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "mallory", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressType(f.String()),
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, addr := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}})
	}
	return s
}

// hostileStrings has each string in every field of a Service and of a slice.
func hostileStrings(f cluster.Family) (all []runtime.Object) {
	for i, text := range Strings() {
		s := newService(text, clusterIP(f, i))
		s.UID, s.Labels, s.Annotations = "uid-"+s.UID, map[string]string{text: text}, map[string]string{text: text}
		s.Spec.Ports[0].Name, s.Spec.Ports[0].NodePort = text, int32(31000+i)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "odd", Protocol: corev1.Protocol(text), Port: 81})
		s.Spec.ExternalIPs, s.Spec.LoadBalancerIP, s.Spec.LoadBalancerSourceRanges = []string{text}, text, []string{text}
		s.Spec.ExternalTrafficPolicy, s.Spec.SessionAffinity = corev1.ServiceExternalTrafficPolicy(text), corev1.ServiceAffinity(text)
		s.Spec.LoadBalancerClass, s.Spec.TrafficDistribution, s.Spec.ExternalName = &text, &text, text
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicy(text))
		s.Spec.HealthCheckNodePort = -1
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: text, Hostname: text}, {}, {Hostname: text}}
		slice := newSlice(f, text, text, pod(f), text)
		slice.Ports[0].Name, slice.Ports[0].AppProtocol = &text, &text
		slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: text}
		e := &slice.Endpoints[0]
		e.NodeName, e.Zone, e.Hostname = &text, &text, &text
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: text}}, ForNodes: []discoveryv1.ForNode{{Name: text}}}
		e.TargetRef = &corev1.ObjectReference{Kind: text, Namespace: text, Name: text, FieldPath: text}
		odd := newSlice(f, "odd "+text, text, pod(f))
		odd.AddressType = discoveryv1.AddressType(text)
		all = append(all, s, slice, odd)
	}
	return all
}

// wide returns a Service with many ports, and slices with many endpoints.
func wide(f cluster.Family, ports, slices, each int) (all []runtime.Object) {
	s := newService("wide", clusterIP(f, 200))
	s.Spec.Ports = nil
	var inSlices []discoveryv1.EndpointPort
	for i := range ports {
		name := fmt.Sprintf("p%d", i)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(i + 1)})
		inSlices = append(inSlices, discoveryv1.EndpointPort{Name: &name, Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)})
	}
	all = append(all, s)
	base := netip.MustParseAddr(address(f, "11.0.0.0", "fd00:11::"))
	for i := range slices {
		slice := newSlice(f, fmt.Sprintf("wide-%d", i), s.Name)
		slice.Ports = inSlices
		for range each {
			base = base.Next()
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{base.String()}})
		}
		all = append(all, slice)
	}
	return all
}

// contradictions has slices that list the same endpoint with different conditions, places and ports, and a victim's slice under
// the attacker's namespace.
func contradictions(f cluster.Family) (all []runtime.Object) {
	all = append(all, newService("web", clusterIP(f, 201)))
	for i := range 16 {
		slice := newSlice(f, fmt.Sprintf("web-%d", i), "web", pod(f), pod(f))
		for j := range slice.Endpoints {
			bits := i + 5*j
			slice.Endpoints[j].Conditions = discoveryv1.EndpointConditions{Ready: new(bits&1 > 0), Serving: new(bits&2 > 0), Terminating: new(bits&4 > 0)}
			slice.Endpoints[j].NodeName = new(fmt.Sprintf("node%d", bits%3))
		}
		slice.Ports = append(slice.Ports, slice.Ports[0], slice.Ports[0])
		slice.Ports[1].Port = new(int32(8080 + i))
		all = append(all, slice)
	}
	wrong := newSlice(f, "web-wrong", "web", address(f, "fd00:10:244:2::3", "10.244.2.3"))
	empty := newSlice(f, "web-empty", "web")
	empty.Endpoints, empty.Ports = []discoveryv1.Endpoint{{}}, []discoveryv1.EndpointPort{{}}
	other := newSlice(f, "web-other", "victim/web", pod(f))
	return append(all, wrong, empty, other)
}

// endpoints has the addresses of the node, of other nodes, of Services and of itself, and addresses that no host has.
func endpoints(f cluster.Family) (all []runtime.Object) {
	for i, addr := range []string{
		address(f, "127.0.0.1", "::1"), address(f, "127.66.0.1", "::ffff:127.0.0.1"), address(f, "169.254.169.254", "fe80::1"),
		address(f, "224.0.0.1", "ff02::1"), address(f, "0.0.0.0", "::"), address(f, "255.255.255.255", "ffff::1"),
		address(f, "172.18.0.11", "fd00:172:18::b"), address(f, "172.18.0.12", "fd00:172:18::c"), address(f, "10.244.1.1", "fd00:10:244:1::1"),
		address(f, "10.96.0.10", "fd00:10:96::a"), address(f, "192.0.2.10", "fd00:192::2:a"), clusterIP(f, 100+11),
		address(f, "240.0.0.1", "::2"), address(f, "10.244.2.3/32", "fd00::1%lo"), address(f, "0x7f.1", "64:ff9b::127.0.0.1"),
	} {
		name := fmt.Sprintf("endpoint-%d", i)
		all = append(all, newService(name, clusterIP(f, 100+i)), newSlice(f, name, name, addr))
	}
	return all
}

// claims has the addresses of the victim's Services, as each kind of address.
func claims(f cluster.Family) (all []runtime.Object) {
	for i, addr := range []string{
		address(f, "10.96.0.10", "fd00:10:96::a"), address(f, "10.96.0.11", "fd00:10:96::b"), address(f, "10.96.0.12", "fd00:10:96::c"),
		address(f, "192.0.2.10", "fd00:192::2:a"), address(f, "172.18.0.11", "fd00:172:18::b"), address(f, "10.244.2.2", "fd00:10:244:2::2"),
	} {
		name := fmt.Sprintf("claim-%d", i)
		s := newService(name, clusterIP(f, 150+i))
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, corev1.ServicePort{Name: "own", Port: 8080})
		s.Spec.Ports[0].NodePort = 30080
		s.Spec.ExternalIPs, s.Spec.LoadBalancerIP = []string{addr}, addr
		all = append(all, s, newSlice(f, name, name, pod(f)))
		// The API server and controllers choose these, and repeat a victim's only by mistake.
		again := newService(name+"-again", clusterIP(f, 170+i))
		if i < 3 {
			again.Spec.ClusterIP, again.Spec.ClusterIPs = addr, []string{addr}
		}
		if i < 4 {
			again.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr}}
		}
		all = append(all, again, newSlice(f, name+"-again", name+"-again", pod(f)))
	}
	return all
}

// invalid has addresses that no Service can have, as each kind of address.
func invalid(f cluster.Family) (all []runtime.Object) {
	for i, addr := range []string{
		address(f, "127.0.0.1", "::1"), address(f, "127.0.0.53", "::ffff:127.0.0.53"), address(f, "0.0.0.0", "::"), address(f, "224.0.0.251", "ff02::fb"),
		address(f, "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "", "None ", Mark, "1.2.3", "1.2.3.4.5", ":::", "10.96.0.10/32", " 10.96.0.10", "2130706433",
	} {
		name := fmt.Sprintf("invalid-%d", i)
		s := newService(name, addr)
		s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 8080, -1
		s.Spec.ExternalIPs, s.Spec.LoadBalancerSourceRanges = []string{addr}, []string{addr + "/0", "0.0.0.0/0", "::/0"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr}}
		all = append(all, s, newSlice(f, name, name, pod(f)))
	}
	return all
}
