//go:build linux

package audit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"
	"sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// many is the number of Services of a random cluster, perKind that of EndpointSlices of each kind that one can have, healthPort the first of
// their health check node ports.
const many, perKind, healthPort = 7, 4, 32000

// random is a cluster that changes at random: its Node, its ServiceCIDRs, Services s0, s1 and so on, and the EndpointSlices of each.
type random struct {
	*rand.Rand
	api      *kubeproxy.API
	node     *corev1.Node
	services map[int]*corev1.Service
	numbers  [many]int // which addresses and ports a Service has
	slices   map[string]*discoveryv1.EndpointSlice
	// endpoints are what all slices of a Service say about a host: whose word counts if they do not agree is not defined.
	endpoints map[string]discoveryv1.Endpoint
	wider     bool            // whether there is a second ServiceCIDR
	steps     []string        // the latest changes
	gaps      map[string]bool // the Services of which something may have been away for a moment
}

// one is true once in n times.
func (r *random) one(n int) bool { return r.IntN(n) == 0 }

// pick returns one of the values.
func pick[T any](r *random, values ...T) T { return values[r.IntN(len(values))] }

// some returns the values that are chosen once in n times, in any order.
func some[T any](r *random, n int, values ...T) (chosen []T) {
	for _, i := range r.Perm(len(values)) {
		if r.one(n) {
			chosen = append(chosen, values[i])
		}
	}
	return chosen
}

// step changes the cluster.
func (r *random) step() {
	changes := []struct {
		name string
		do   func(n int)
	}{
		{"replace", r.replace}, {"replace", r.replace}, {"replace", r.replace}, {"alter", r.alter}, {"alter", r.alter}, {"recreate", r.recreate}, {"swap", r.swap},
		{"conditions", r.conditions}, {"conditions", r.conditions}, {"conditions", r.conditions}, {"move", r.move}, {"move", r.move}, {"node", r.alterNode}, {"range", r.widen},
	}
	change, n := pick(r, changes...), r.IntN(many)
	r.steps = append(r.steps, fmt.Sprint(change.name, " s", n))
	if slices.Contains([]string{"replace", "recreate", "swap", "move"}, change.name) {
		r.gaps[fmt.Sprint("s", n)] = true
	}
	change.do(n)
}

// replace replaces a Service, before or after some of its EndpointSlices.
func (r *random) replace(n int) {
	service, first := r.services[n] == nil || r.one(2), r.one(2)
	if service && first {
		r.putService(n)
	}
	all := r.one(2)
	if all {
		maps.DeleteFunc(r.endpoints, func(key string, _ discoveryv1.Endpoint) bool { return strings.HasPrefix(key, fmt.Sprint(n, " ")) })
	}
	for _, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN} {
		for i := range perKind {
			if name := sliceName(n, kind, i); r.one(3) || all && r.slices[name] != nil {
				r.putSlice(name, r.slice(n, name, kind))
			}
		}
	}
	if service && !first {
		r.putService(n)
	}
}

// alter changes one property of a Service.
func (r *random) alter(n int) {
	last := r.services[n]
	if last == nil {
		return
	}
	next, another := last.DeepCopy(), r.service(n)
	spec, other := &next.Spec, another.Spec
	properties := []func(){
		func() {
			spec.SessionAffinity, spec.SessionAffinityConfig = other.SessionAffinity, other.SessionAffinityConfig
		},
		func() { spec.InternalTrafficPolicy = other.InternalTrafficPolicy },
		func() {
			spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies = other.ClusterIP, other.ClusterIPs, other.IPFamilies
		},
		func() { spec.ExternalIPs = other.ExternalIPs },
		func() {
			spec.TrafficDistribution, spec.PublishNotReadyAddresses = other.TrafficDistribution, other.PublishNotReadyAddresses
		},
	}
	if spec.Type == other.Type {
		properties = append(properties,
			func() { spec.Ports = other.Ports },
			func() {
				spec.ExternalTrafficPolicy, spec.HealthCheckNodePort = other.ExternalTrafficPolicy, other.HealthCheckNodePort
			},
			func() { spec.LoadBalancerSourceRanges = other.LoadBalancerSourceRanges },
			func() { next.Status = another.Status })
	}
	pick(r, properties...)()
	r.services[n] = next
	r.api.Put(next)
}

// recreate deletes a Service, and creates it anew.
func (r *random) recreate(n int) {
	if last := r.services[n]; last != nil {
		r.api.Remove(last)
		r.services[n] = last.DeepCopy()
		r.services[n].UID = r.uid()
		r.api.Put(r.services[n])
	}
}

// swap gives two Services all that the other one has, except its endpoints.
func (r *random) swap(n int) {
	m := (n + 1 + r.IntN(many-1)) % many
	if r.services[n] == nil || r.services[m] == nil {
		return
	}
	a, b := r.services[n].DeepCopy(), r.services[m].DeepCopy()
	a.Spec, a.Status, b.Spec, b.Status = b.Spec, b.Status, a.Spec, a.Status
	r.services[n], r.services[m] = a, b
	r.numbers[n], r.numbers[m] = r.numbers[m], r.numbers[n]
	r.gaps[b.Name] = true
	r.api.Put(a)
	r.api.Put(b)
}

// conditions changes the condition of some endpoints in all slices of a Service, or removes them.
func (r *random) conditions(n int) {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(r.endpoints)), func(key string) bool { return !strings.HasPrefix(key, fmt.Sprint(n, " ")) })
	for _, key := range some(r, 3, keys...) {
		last := r.endpoints[key]
		next := last
		next.Conditions = pick(r, discoveryv1.EndpointConditions{Ready: new(true)}, discoveryv1.EndpointConditions{Ready: new(false)},
			discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)},
			discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)})
		gone := r.one(3)
		if r.endpoints[key] = next; gone {
			delete(r.endpoints, key)
		}
		for _, name := range r.sliceNames(n) {
			slice := r.slices[name].DeepCopy()
			for i := len(slice.Endpoints) - 1; i >= 0; i-- {
				switch said := reflect.DeepEqual(slice.Endpoints[i], last); {
				case said && gone:
					slice.Endpoints = slices.Delete(slice.Endpoints, i, i+1)
				case said:
					slice.Endpoints[i] = next
				}
			}
			if !reflect.DeepEqual(slice, r.slices[name]) {
				r.slices[name] = slice
				r.api.Put(slice)
			}
		}
	}
}

// move moves endpoints of an EndpointSlice to another one, which may be new: that of all is a new name.
func (r *random) move(n int) {
	names := r.sliceNames(n)
	if len(names) == 0 {
		return
	}
	from := r.slices[pick(r, names...)].DeepCopy()
	to := from.DeepCopy()
	to.Name, to.UID, to.Endpoints = sliceName(n, from.AddressType, r.IntN(perKind)), r.uid(), nil
	if last := r.slices[to.Name]; last != nil {
		to = last.DeepCopy()
	}
	if to.Name == from.Name {
		return
	}
	keep := r.IntN(len(from.Endpoints) + 1)
	to.Endpoints = append(to.Endpoints, from.Endpoints[keep:]...)
	from.Endpoints = from.Endpoints[:keep]
	added := r.one(2)
	if r.slices[to.Name] = to; added {
		r.api.Put(to)
	}
	if r.slices[from.Name] = from; keep > 0 {
		r.api.Put(from)
	} else {
		delete(r.slices, from.Name)
		r.api.Remove(from)
	}
	if !added {
		r.api.Put(to)
	}
}

// alterNode changes the Node's zone, and one other property.
func (r *random) alterNode(int) {
	r.node = r.node.DeepCopy()
	r.node.Labels[corev1.LabelTopologyZone] = map[string]string{"a": "b", "b": "a"}[r.zone()]
	switch r.IntN(4) {
	case 0:
		r.node.Status.Addresses = nil
		for _, address := range pick(r, []string{"172.18.0.11", "fd00:172:18::b"}, []string{second, "fd00:172:18::b"}, []string{"fd00:172:18::b", "172.18.0.11", second}) {
			r.node.Status.Addresses = append(r.node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
		}
	case 1:
		r.node.Spec.PodCIDRs = pick(r, []string{"10.244.1.0/24", "fd00:10:244:1::/64"}, []string{"10.244.0.0/16", "fd00:10:244::/48"}, []string{"10.244.1.2/32", "fd00:10:244:1::2/128"})
	case 2:
		r.node.Spec.Taints = some(r, 2, corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule})
	}
	r.api.Put(r.node)
}

func (r *random) zone() string { return r.node.Labels[corev1.LabelTopologyZone] }

// primary reports whether an address is the Node's first of its family.
func (r *random) primary(at netip.Addr) bool {
	i := slices.IndexFunc(r.node.Status.Addresses, func(a corev1.NodeAddress) bool { return netip.MustParseAddr(a.Address).Is4() == at.Is4() })
	return i >= 0 && r.node.Status.Addresses[i].Address == at.String()
}

// widen adds a ServiceCIDR, or removes it, and waits: theirs has it in its rules when something else changes.
func (r *random) widen(int) {
	if more := serviceCIDR("more", pick(r, []string{"10.97.0.0/16"}, []string{"fd00:10:97::/112"}, []string{"10.97.0.0/16", "fd00:10:97::/112"})...); r.wider {
		r.api.Remove(more)
	} else {
		r.api.Put(more)
	}
	r.wider = !r.wider
	time.Sleep(200 * time.Millisecond)
}

func serviceCIDR(name string, ranges ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{TypeMeta: metav1.TypeMeta{Kind: "ServiceCIDR", APIVersion: "networking.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges}}
}

// putService replaces a Service, or deletes it.
func (r *random) putService(n int) {
	last, next := r.services[n], r.service(n)
	if last != nil && (r.one(8) || !maps.Equal(last.Labels, next.Labels)) {
		r.api.Remove(last)
		delete(r.services, n)
	} else if last != nil {
		next.UID = last.UID
	}
	if !r.one(8) {
		r.services[n] = next
		r.api.Put(next)
	}
}

// sliceName is the name of one of the EndpointSlices of a Service, of which there are up to perKind of each kind.
func sliceName(n int, kind discoveryv1.AddressType, i int) string {
	return fmt.Sprintf("s%d-%s-%d", n, strings.ToLower(string(kind)), i)
}

// sliceNames returns the names of the EndpointSlices of a Service.
func (r *random) sliceNames(n int) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.slices)), func(name string) bool { return !strings.HasPrefix(name, fmt.Sprintf("s%d-", n)) })
}

// putSlice replaces an EndpointSlice, or deletes it.
func (r *random) putSlice(name string, next *discoveryv1.EndpointSlice) {
	if last := r.slices[name]; last != nil && (r.one(8) || !maps.Equal(last.Labels, next.Labels)) {
		r.api.Remove(last)
		delete(r.slices, name)
	} else if last != nil {
		next.UID = last.UID
	}
	if r.one(2) || r.slices[name] != nil {
		r.slices[name] = next
		r.api.Put(next)
	}
}

// meta returns the metadata of an object that may be about to be deleted.
func (r *random) meta(name string, labels map[string]string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, UID: r.uid()}
	if r.one(12) {
		meta.DeletionTimestamp = new(metav1.Now())
		meta.Finalizers = []string{"example.com/wait"}
	}
	return meta
}

func (r *random) uid() types.UID { return types.UID(fmt.Sprintf("%016x", r.Uint64())) }

// service returns any Service with the addresses and ports of its number.
func (r *random) service(n int) *corev1.Service {
	four, six := corev1.IPv4Protocol, corev1.IPv6Protocol
	s := &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: r.meta(fmt.Sprint("s", n), map[string]string{})}
	n = r.numbers[n]
	switch r.IntN(20) {
	case 0:
		s.Labels["service.kubernetes.io/service-proxy-name"] = pick(r, "", "other")
	case 1:
		s.Labels[corev1.IsHeadlessService] = ""
	}
	s.Spec = corev1.ServiceSpec{
		Type:                     pick(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer),
		IPFamilies:               pick(r, []corev1.IPFamily{four, six}, []corev1.IPFamily{six, four}, []corev1.IPFamily{four}, []corev1.IPFamily{six}),
		InternalTrafficPolicy:    pick(r, new(corev1.ServiceInternalTrafficPolicyCluster), new(corev1.ServiceInternalTrafficPolicyLocal)),
		ExternalTrafficPolicy:    pick(r, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal),
		SessionAffinity:          pick(r, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP),
		PublishNotReadyAddresses: r.one(4),
		TrafficDistribution:      pick(r, nil, new(corev1.ServiceTrafficDistributionPreferClose), new("PreferSameNode")),
		ExternalIPs:              some(r, 4, fmt.Sprint("192.0.2.", 100+n), fmt.Sprintf("2001:db8:2::%x", 100+n), fmt.Sprint("192.000.002.", 150+n)),
	}
	for _, family := range s.Spec.IPFamilies {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, map[corev1.IPFamily]string{four: fmt.Sprint("10.96.0.", 10+n), six: fmt.Sprintf("fd00:10:96::%x", 10+n)}[family])
	}
	names := r.Perm(4)
	for i, protocol := range append(some(r, 2, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP), corev1.ProtocolTCP) {
		port := corev1.ServicePort{Name: fmt.Sprint("p", names[i]), Protocol: protocol, Port: int32(80 + r.IntN(3))}
		if s.Spec.Type != corev1.ServiceTypeClusterIP && !r.one(8) {
			port.NodePort = port.Port - 80 + int32(30000+10*n+3*r.IntN(2))
		}
		if !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == protocol && p.Port == port.Port }) {
			s.Spec.Ports = append(s.Spec.Ports, port)
		}
	}
	if len(s.Spec.Ports) == 1 && r.one(2) {
		s.Spec.Ports[0].Name = ""
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(pick(r, int32(3600), 10800))}}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		r.balanced(n, s)
	}
	switch r.IntN(16) {
	case 0:
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	case 1:
		s.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	return s
}

// balanced adds what Services of type LoadBalancer have.
func (r *random) balanced(n int, s *corev1.Service) {
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		s.Spec.HealthCheckNodePort = int32(healthPort + n)
	}
	s.Spec.LoadBalancerSourceRanges = some(r, 8, "172.18.0.0/24", " 198.18.0.0/15 ", "10.244.1.2/32", "172.18.0.11/32", "0.0.0.0/0", "10.244.2.9/24",
		"fd00:172:18::/64", "2001:db8:18::/64", "::/0", "fd00:10:244:1::2/128")
	addresses := []string{fmt.Sprint("192.0.2.", 10+n), fmt.Sprint("192.0.2.", 30+n), fmt.Sprintf("2001:db8:2::%x", 10+n)}
	switch n {
	case 0:
		addresses = append(addresses, vip)
	case 1:
		addresses = append(addresses, "172.18.0.11", "fd00:172:18::b") // as of k3s
	}
	for _, address := range some(r, 2, addresses...) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address,
			IPMode: pick(r, nil, nil, new(corev1.LoadBalancerIPModeVIP), new(corev1.LoadBalancerIPModeProxy))})
	}
	if r.one(8) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{Hostname: "example.com"})
	}
}

// slice returns any EndpointSlice of a Service.
func (r *random) slice(n int, name string, kind discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"}, AddressType: kind, ObjectMeta: r.meta(name, map[string]string{})}
	if !r.one(16) {
		slice.Labels[discoveryv1.LabelServiceName] = fmt.Sprint("s", n)
	}
	if r.one(16) {
		slice.Labels[corev1.IsHeadlessService] = ""
	}
	for i := range 4 {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			if !r.one(8) {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), Protocol: new(protocol), Port: new(pick(r, int32(8080), 8080, 8081))})
			}
		}
	}
	slice.Ports = append(slice.Ports, some(r, 2,
		discoveryv1.EndpointPort{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8081))},
		discoveryv1.EndpointPort{Name: new(""), Protocol: new(corev1.ProtocolUDP), Port: new(int32(8080))},
		discoveryv1.EndpointPort{Name: new("p9"), Protocol: new(corev1.ProtocolTCP)})...)
	if r.one(16) {
		slice.Ports = []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP)}} // all ports
	}
	hinted := pick(r, 0, 0, 1, 2, 3) // not, by zone, by node, by both
	for _, host := range some(r, 3, "10.244.1.2", "10.244.1.3", "10.244.2.2", "10.244.2.3", "172.18.0.11", "172.18.0.12", "10.244.2.2") {
		key := fmt.Sprint(n, " ", kind, " ", host)
		if _, known := r.endpoints[key]; !known {
			r.endpoints[key] = r.endpoint(host, kind, hinted)
		}
		slice.Endpoints = append(slice.Endpoints, r.endpoints[key])
	}
	return slice
}

// endpoint returns any endpoint of a host.
func (r *random) endpoint(host string, kind discoveryv1.AddressType, hinted int) discoveryv1.Endpoint {
	at := netip.MustParseAddr(host).As4()
	here := "node1"
	if at[0] == 10 && at[2] == 2 || at[3] == 12 {
		here = "node2"
	}
	e := discoveryv1.Endpoint{Addresses: []string{host}, NodeName: pick(r, &here, &here, &here, &here, &here, &here, nil, new("node1"), new("node2"))}
	switch {
	case kind == discoveryv1.AddressTypeFQDN:
		e.Addresses[0] = "example.com"
	case kind == discoveryv1.AddressTypeIPv6 && at[0] == 10:
		e.Addresses[0] = fmt.Sprintf(pick(r, "fd00:10:244:%x::%x", "FD00:10:244:%x:0:0:0:%x"), at[2], at[3])
	case kind == discoveryv1.AddressTypeIPv6:
		e.Addresses[0] = fmt.Sprintf("fd00:172:18::%x", at[3])
	case r.one(8):
		e.Addresses[0] = fmt.Sprintf("%03d.%03d.%03d.%03d", at[0], at[1], at[2], at[3])
	}
	if r.one(8) {
		e.Addresses = append(e.Addresses, map[discoveryv1.AddressType]string{"IPv4": "10.244.2.99", "IPv6": "fd00:10:244:2::99", "FQDN": "example.org"}[kind])
	}
	e.Conditions = pick(r, discoveryv1.EndpointConditions{}, discoveryv1.EndpointConditions{Ready: new(true)}, discoveryv1.EndpointConditions{Ready: new(true)},
		discoveryv1.EndpointConditions{Ready: pick(r, nil, new(true), new(false)), Serving: pick(r, nil, new(true), new(false)), Terminating: pick(r, nil, new(true), new(false))})
	if hinted > 0 && !r.one(8) {
		e.Hints = &discoveryv1.EndpointHints{}
		if hinted&1 != 0 {
			e.Hints.ForZones = []discoveryv1.ForZone{{Name: pick(r, "a", "b")}}
		}
		if hinted&2 != 0 {
			e.Hints.ForNodes = []discoveryv1.ForNode{{Name: pick(r, "node1", "node2")}}
		}
	}
	return e
}

// newRandom returns an empty cluster. The seed determines all changes.
func newRandom(seed uint64, api *kubeproxy.API) *random {
	r := &random{Rand: rand.New(rand.NewPCG(seed, 7)), api: api, services: map[int]*corev1.Service{}, slices: map[string]*discoveryv1.EndpointSlice{}, endpoints: map[string]discoveryv1.Endpoint{}}
	for n := range r.numbers {
		r.numbers[n] = n
	}
	r.node = &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
	r.node.Spec.PodCIDRs = []string{"10.244.1.0/24", "fd00:10:244:1::/64"}
	r.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.18.0.11"}, {Type: corev1.NodeInternalIP, Address: "fd00:172:18::b"}}
	api.Put(r.node)
	api.Put(serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:10:96::/112"))
	return r
}

// mark puts a Service with a port of this round, EndpointSlices with ports of this round and an endpoint for each zone, and
// returns what becomes of packets when all of them and the Node are known.
func (r *random) mark(round int) map[netip.AddrPort]string {
	s := &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mark"}}
	s.Spec = corev1.ServiceSpec{ClusterIP: "10.96.1.1", ClusterIPs: []string{"10.96.1.1", "fd00:10:96::101"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: int32(10000 + round)}}, TrafficDistribution: new(corev1.ServiceTrafficDistributionPreferClose)}
	r.api.Put(s)
	became := map[netip.AddrPort]string{}
	for i, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"}, AddressType: kind,
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("mark-", i), Labels: map[string]string{discoveryv1.LabelServiceName: "mark"}},
			Ports:      []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080 + round%2))}}}
		for j, zone := range []string{"a", "b"} {
			address := netip.MustParseAddr(fmt.Sprintf([]string{"10.244.2.%d", "fd00:10:244:2::%d"}[i], 2+j))
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
				Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}})
			if zone == r.zone() {
				became[netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[i]), uint16(10000+round))] =
					fmt.Sprintf("answered by pod2%s at %v", zone, netip.AddrPortFrom(address, uint16(8080+round%2)))
			}
		}
		r.api.Put(slice)
	}
	return became
}

// frontend is what a packet is sent to.
type frontend struct {
	kind    string
	service *corev1.Service
	port    string // its name
}

// continues reports whether a frontend belongs to the same port of a Service after a change.
func (f frontend) continues(after frontend) bool {
	return f.service != nil && after.service != nil && f.service.Name == after.service.Name && f.port == after.port
}

// sticky reports whether packets of one source are sent to one endpoint.
func (f frontend) sticky(k packet) bool {
	return k.from != "external" && f.service != nil && f.service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
}

// frontends returns packets to every address and port of the Services, and to some that nobody has.
func (r *random) frontends() map[packet]frontend {
	all := map[packet]frontend{}
	add := func(kind, text string, port int32, p corev1.ServicePort, s *corev1.Service) {
		ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
		if !ok {
			return
		}
		for _, from := range []string{"client", "external", "pod1a", "pod1b", "pod2a", "node1"} {
			to := netip.AddrPortFrom(ip.Unmap(), uint16(port))
			remote := from == "pod2a" && kind != "node port" // node2 has no proxy
			if !remote && (from == "node1" || !ip.IsLoopback()) {
				all[packet{from, to, netns.Protocol(p.Protocol)}] = frontend{kind, s, p.Name}
			}
		}
	}
	for _, s := range r.services {
		for _, port := range s.Spec.Ports {
			for _, ip := range s.Spec.ClusterIPs {
				add("cluster IP", ip, port.Port, port, s)
				add("undefined port", ip, undefined, port, s)
			}
			for _, ip := range s.Spec.ExternalIPs {
				add("external IP", ip, port.Port, port, s)
			}
			for _, ingress := range s.Status.LoadBalancer.Ingress {
				add("load balancer IP", ingress.IP, port.Port, port, s)
			}
			if port.NodePort != 0 {
				for _, ip := range []string{"172.18.0.11", "fd00:172:18::b", second, vip, bridge, "127.0.0.1", "::1"} {
					add("node port", ip, port.NodePort, port, s)
				}
			}
		}
	}
	add("unallocated", unallocated, 80, corev1.ServicePort{Protocol: corev1.ProtocolTCP}, nil)
	add("unallocated", "fd00:10:96::abcd", 80, corev1.ServicePort{Protocol: corev1.ProtocolUDP}, nil)
	add("unallocated", "10.97.200.200", 80, corev1.ServicePort{Protocol: corev1.ProtocolUDP}, nil)
	add("unallocated", "fd00:10:97::abcd", 80, corev1.ServicePort{Protocol: corev1.ProtocolTCP}, nil)
	return all
}

// describe returns a Service and its EndpointSlices as YAML.
func (r *random) describe(s *corev1.Service) string {
	if s == nil {
		return ""
	}
	text, _ := yaml.Marshal(s)
	for _, name := range slices.Sorted(maps.Keys(r.slices)) {
		if slice := r.slices[name]; strings.HasPrefix(name, s.Name+"-") {
			more, _ := yaml.Marshal(slice)
			text = append(append(text, "---\n"...), more...)
		}
	}
	return string(text)
}

// named returns a Service as it is now.
func (r *random) named(s *corev1.Service) *corev1.Service {
	for _, now := range r.services {
		if s != nil && now.Name == s.Name {
			return now
		}
	}
	return nil
}

// contradicts reports whether slices of a Service say that an endpoint is ready, but not serving.
func (r *random) contradicts(s *corev1.Service, endpoint netip.AddrPort) bool {
	for key, e := range r.endpoints {
		if s != nil && strings.HasPrefix(key, s.Name[1:]+" ") && netutils.ParseIPSloppy(e.Addresses[0]).Equal(endpoint.Addr().AsSlice()) {
			return (e.Conditions.Ready == nil || *e.Conditions.Ready) && e.Conditions.Serving != nil && !*e.Conditions.Serving
		}
	}
	return false
}

// serves reports whether a Service has an endpoint of a family that is ready or serving.
func (r *random) serves(s *corev1.Service, kind discoveryv1.AddressType) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(r.slices)), func(slice *discoveryv1.EndpointSlice) bool {
		return slice.Labels[discoveryv1.LabelServiceName] == s.Name && slice.AddressType == kind &&
			slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
				return e.Conditions.Ready == nil || *e.Conditions.Ready || e.Conditions.Serving != nil && *e.Conditions.Serving
			})
	})
}

// misplaced reports whether the sender of a packet is an endpoint whose slices do not name its node.
func (r *random) misplaced(k packet) bool {
	host := map[string]string{"pod1a": "10.244.1.2", "pod1b": "10.244.1.3", "pod2a": "10.244.2.2"}[k.from]
	for key, e := range r.endpoints {
		if host != "" && strings.HasSuffix(key, " "+host) && (e.NodeName == nil || *e.NodeName != "node"+k.from[3:4]) {
			return true
		}
	}
	return false
}
