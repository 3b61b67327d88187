package cluster

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	netutils "k8s.io/utils/net"
)

// model is what a Builder does, in the simplest way: it keeps the objects themselves and computes each Snapshot from all of
// them. It shares no code with the Builder except the types of a Snapshot, and Map.
type model struct {
	services   map[ServiceName]*corev1.Service
	slices     map[SliceName]*discoveryv1.EndpointSlice
	cidrs      map[string]*networkingv1.ServiceCIDR
	interfaces []netip.Addr
	// nodes are the versions of this node's object, the latest one last; deleted reports whether it was deleted since.
	nodes   []*corev1.Node
	deleted bool
	// name and addrs are of this node, from the configuration.
	name  string
	addrs []netip.Addr
}

func newModel(name string, addrs ...netip.Addr) *model {
	return &model{services: map[ServiceName]*corev1.Service{}, slices: map[SliceName]*discoveryv1.EndpointSlice{},
		cidrs: map[string]*networkingv1.ServiceCIDR{}, name: name, addrs: addrs}
}

func (m *model) snapshot() *Snapshot {
	s := &Snapshot{Node: m.node()}
	for name, object := range m.services {
		_, foreign := object.Labels["service.kubernetes.io/service-proxy-name"]
		if foreign || object.Spec.Type == "ExternalName" || object.Spec.ClusterIP == "" || object.Spec.ClusterIP == "None" {
			continue
		}
		service := modelService(name, object)
		service.Slices = m.slicesOf(name)
		s.Services = s.Services.Set(name, service)
	}
	var cidrs []string
	for _, object := range m.cidrs {
		cidrs = append(cidrs, object.Spec.CIDRs...)
	}
	s.ServiceCIDRs, _ = prefixes(cidrs)
	return s
}

// relist sets all objects again.
func (m *model) relist(u *Update) {
	for _, object := range m.services {
		u.SetService(object)
	}
	for _, object := range m.slices {
		u.SetEndpointSlice(object)
	}
	for _, object := range m.cidrs {
		u.SetServiceCIDR(object)
	}
	if len(m.nodes) > 0 && !m.deleted {
		u.SetNode(m.nodes[len(m.nodes)-1])
	}
}

// endpoints counts the endpoints of all slices, with and without a Service.
func (m *model) endpoints() (count int) {
	for owner := range m.owners() {
		for _, slice := range m.slicesOf(owner) {
			count += len(slice.Endpoints)
		}
	}
	return count
}

// unowned returns the names of the slices whose Service is not in a Snapshot.
func (m *model) unowned(s *Snapshot) map[ServiceName][]string {
	found := map[ServiceName][]string{}
	for owner := range m.owners() {
		if _, served := s.Services.Get(owner); !served {
			for _, slice := range m.slicesOf(owner) {
				found[owner] = append(found[owner], slice.Name)
			}
		}
	}
	return found
}

// owners returns the Services that slices refer to.
func (m *model) owners() map[ServiceName]bool {
	all := map[ServiceName]bool{}
	for name, object := range m.slices {
		all[ServiceName{name.Namespace, object.Labels["kubernetes.io/service-name"]}] = true
	}
	return all
}

// slicesOf returns the usable slices of a Service, sorted by name.
func (m *model) slicesOf(service ServiceName) (found []*EndpointSlice) {
	for name, object := range m.slices {
		_, headless := object.Labels["service.kubernetes.io/headless"]
		owner := object.Labels["kubernetes.io/service-name"]
		usable := owner != "" && !headless && (object.AddressType == "IPv4" || object.AddressType == "IPv6")
		if usable && (ServiceName{name.Namespace, owner}) == service {
			found = append(found, m.slice(object))
		}
	}
	slices.SortFunc(found, func(a, b *EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

func modelService(name ServiceName, object *corev1.Service) *Service {
	spec := object.Spec
	s := &Service{Name: name, UID: string(object.UID), External: &External{ExternalIPs: addresses(spec.ExternalIPs)}}
	if t := object.CreationTimestamp; !t.IsZero() {
		s.Created = t.UnixMicro()
	}
	s.ClusterIPs = addresses(spec.ClusterIPs)
	if len(spec.ClusterIPs) == 0 {
		s.ClusterIPs = addresses([]string{spec.ClusterIP})
	}
	if spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == "Local" {
		s.InternalPolicy = PolicyLocal
	}
	if spec.ExternalTrafficPolicy == "Local" {
		s.ExternalPolicy = PolicyLocal
	}
	var vips []string
	for _, ingress := range object.Status.LoadBalancer.Ingress {
		if ingress.IPMode == nil || *ingress.IPMode == "VIP" {
			vips = append(vips, ingress.IP)
		}
	}
	s.External.Stray = addresses(vips)
	if spec.Type == "LoadBalancer" {
		s.External.Stray = nil
		s.External.LoadBalancerIPs = addresses(vips)
		if s.ExternalPolicy == PolicyLocal {
			s.HealthCheckNodePort, _ = portNumber(spec.HealthCheckNodePort)
		}
	}
	if spec.SessionAffinity == "ClientIP" {
		s.Affinity = 3 * time.Hour
		if c := spec.SessionAffinityConfig; c != nil && *c.ClientIP.TimeoutSeconds > 0 && *c.ClientIP.TimeoutSeconds <= 86400 {
			s.Affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	// A range that cannot be read restricts the clients of both families as much as the other ranges allow.
	ranges, invalid := prefixes(spec.LoadBalancerSourceRanges)
	s.External.SourceRanges = ranges
	for _, nobody := range []string{"0.0.0.0/32", "::/128"} {
		none := netip.MustParsePrefix(nobody)
		if invalid && !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().BitLen() == none.Addr().BitLen() }) {
			s.External.SourceRanges = append(s.External.SourceRanges, none)
		}
	}
	slices.SortFunc(s.External.SourceRanges, netip.Prefix.Compare)
	for _, port := range spec.Ports {
		protocol, known := protocols()[port.Protocol]
		if n, ok := portNumber(port.Port); ok && known {
			nodePort, _ := portNumber(port.NodePort)
			s.Ports = append(s.Ports, ServicePort{Name: port.Name, Protocol: protocol, Port: n, NodePort: nodePort})
		}
	}
	return s
}

func (m *model) slice(object *discoveryv1.EndpointSlice) *EndpointSlice {
	s := &EndpointSlice{Name: object.Name}
	for _, port := range object.Ports {
		if port.Name == nil || port.Port == nil {
			continue
		}
		protocol, known := TCP, true
		if port.Protocol != nil {
			protocol, known = protocols()[*port.Protocol]
		}
		if n, ok := portNumber(*port.Port); ok && known {
			s.Ports = append(s.Ports, EndpointPort{Name: *port.Name, Protocol: protocol, Port: n})
		}
	}
	slices.SortStableFunc(s.Ports, func(a, b EndpointPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol))
	})
	for _, e := range object.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		addr := addresses(e.Addresses[:1])
		if len(addr) == 0 || addr[0].Is4() != (object.AddressType == "IPv4") ||
			addr[0].IsLoopback() || addr[0].IsLinkLocalUnicast() || addr[0].IsMulticast() || addr[0].IsUnspecified() {
			continue
		}
		endpoint := Endpoint{Addr: addr[0]}
		for condition, holds := range map[Conditions]bool{
			Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
			Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
			Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
			Local:       e.NodeName != nil && *e.NodeName == m.name,
			NoNodeName:  e.NodeName == nil || *e.NodeName == "",
			NodeHint:    e.Hints != nil && len(e.Hints.ForNodes) > 0,
			ThisNode:    e.Hints != nil && slices.Contains(e.Hints.ForNodes, discoveryv1.ForNode{Name: m.name}),
		} {
			if holds {
				endpoint.Conditions |= condition
			}
		}
		if e.Hints != nil && len(e.Hints.ForZones) > 0 {
			var zones []string
			for _, zone := range e.Hints.ForZones {
				zones = append(zones, zone.Name)
			}
			slices.Sort(zones)
			endpoint.Zones = Zones{unique.Make(strings.Join(slices.Compact(zones), "\x00"))}
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	return s
}

// node uses the latest version of the object. Addresses and pod CIDRs are those of the latest version that has any.
func (m *model) node() *Node {
	node := &Node{Name: m.name, Exists: len(m.nodes) > 0 && !m.deleted, Draining: m.deleted, Interfaces: m.interfaces}
	var found []netip.Addr
	for _, object := range m.nodes {
		var internal, external []string
		for _, address := range object.Status.Addresses {
			switch address.Type {
			case "InternalIP":
				internal = append(internal, address.Address)
			case "ExternalIP":
				external = append(external, address.Address)
			}
		}
		if addrs := addresses(append(internal, external...)); len(addrs) > 0 {
			found = addrs
		}
		if cidrs, _ := prefixes(object.Spec.PodCIDRs); len(cidrs) > 0 {
			node.PodCIDRs = cidrs
		}
		node.Zone = object.Labels["topology.kubernetes.io/zone"]
		node.Draining = m.deleted || object.DeletionTimestamp != nil ||
			slices.ContainsFunc(object.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "ToBeDeletedByClusterAutoscaler" })
	}
	for _, addr := range append(slices.Clone(m.addrs), found...) {
		if !slices.ContainsFunc(node.Addresses, func(a netip.Addr) bool { return a.BitLen() == addr.BitLen() }) {
			node.Addresses = append(node.Addresses, addr)
		}
	}
	return node
}

func protocols() map[corev1.Protocol]Protocol {
	return map[corev1.Protocol]Protocol{"": TCP, "TCP": TCP, "UDP": UDP, "SCTP": SCTP}
}

// portNumber returns a port number; 0 and false if it cannot be one.
func portNumber(n int32) (uint16, bool) {
	if n < 1 || n > 65535 {
		return 0, false
	}
	return uint16(n), true
}

// addresses returns the valid addresses, each once.
func addresses(texts []string) (valid []netip.Addr) {
	for _, text := range texts {
		addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
		if ok && !slices.Contains(valid, addr.Unmap()) {
			valid = append(valid, addr.Unmap())
		}
	}
	return valid
}

// prefixes returns the valid CIDRs, sorted and each once, and whether any is invalid.
func prefixes(texts []string) (valid []netip.Prefix, invalid bool) {
	for _, text := range texts {
		address, length, _ := strings.Cut(strings.TrimSpace(text), "/")
		addr, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(address)) // IPv4 has 16 bytes too
		if !strings.Contains(address, ":") {
			addr = addr.Unmap()
		}
		bits, err := strconv.ParseUint(length, 10, 16)
		prefix := netip.PrefixFrom(addr, int(bits)).Masked()
		if err != nil || !prefix.IsValid() {
			invalid = true
			continue
		}
		if prefix.Addr().Is4In6() {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		valid = append(valid, prefix)
	}
	slices.SortFunc(valid, netip.Prefix.Compare)
	return slices.Compact(valid), invalid
}
