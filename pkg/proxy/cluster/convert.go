package cluster

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

// LabelServiceProxyName is the label of Services that are for another proxy, and of their EndpointSlices, to which the controller copies it.
// k8s.io/api has no constant for it.
const LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// AnnotationUDPConnectionHandling is the annotation of a Service that selects what happens to UDP flows to a terminating endpoint:
// Default, or PreserveDuringTermination (KEP-5989, alpha).
const AnnotationUDPConnectionHandling = "service.kubernetes.io/udp-connection-handling"

// AnnotationFastPath is the annotation of a Service: "true" requests the fast path for its long connections, "false" refuses it.
const AnnotationFastPath = "kube-proxy/fast-path"

// Annotations returns the annotations that a Builder reads of any object.
func Annotations() []string {
	return []string{corev1.EndpointsLastChangeTriggerTime, AnnotationUDPConnectionHandling, AnnotationFastPath, AnnotationConnectionLimits,
		AnnotationAlgorithm, AnnotationCiliumAlgorithm, AnnotationWeight, AnnotationCiliumWeight}
}

const (
	taintToBeDeleted = "ToBeDeletedByClusterAutoscaler" // KEP-3836; k8s.io/api has no constant for it
	maxAffinity      = 24 * time.Hour                   // the API's limit
)

// converter converts API objects into this package's values. Repeated strings and sets are shared.
type converter struct {
	nodeName  string
	nodeAddrs []netip.Addr // from the configuration
}

// served reports whether a Service is for this proxy.
func served(s *corev1.Service) bool {
	_, foreign := s.Labels[LabelServiceProxyName]
	return !foreign && s.Spec.Type != corev1.ServiceTypeExternalName &&
		s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone
}

func (c *converter) service(object *corev1.Service) (*Service, []*Problem) {
	var p parser
	spec := &object.Spec
	s := &Service{
		Name:           ServiceName{Namespace: share(object.Namespace), Name: object.Name},
		UID:            string(object.UID),
		External:       p.external(object),
		ExternalPolicy: PolicyCluster,
		PreserveUDP:    p.preserveUDP(object.Annotations),
		FastPath:       p.fastPath(object.Annotations),
	}
	if created := object.CreationTimestamp; !created.IsZero() {
		s.Created = created.UnixMicro()
	}
	s.Algorithm, s.Ignored = balancing(object.Annotations)
	s.Fence = askedFence(object.Annotations)
	clusterIPs := spec.ClusterIPs
	if len(clusterIPs) == 0 {
		clusterIPs = []string{spec.ClusterIP}
	}
	s.ClusterIPs = p.addrs("spec.clusterIPs", clusterIPs)
	if spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal {
		s.InternalPolicy = PolicyLocal
	}
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		s.ExternalPolicy = PolicyLocal
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.Affinity = p.affinity(spec.SessionAffinityConfig)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && s.ExternalPolicy == PolicyLocal {
		s.HealthCheckNodePort = p.port(path{name: "spec.healthCheckNodePort"}, spec.HealthCheckNodePort, true)
	}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		at := path{list: "spec.ports", index: i}
		protocol, ok := p.protocol(at.field("protocol"), &port.Protocol)
		number := p.port(at.field("port"), port.Port, false)
		if ok && number != 0 {
			s.Ports = append(s.Ports, ServicePort{Name: share(port.Name), Protocol: protocol, Port: number,
				NodePort: p.port(at.field("nodePort"), port.NodePort, true)})
		}
	}
	return s, p.all()
}

// parser parses the fields of an object. It leaves out those that are invalid, and collects a Problem for each.
type parser struct{ problems }

// external returns nil if there are no addresses and ranges.
func (p *parser) external(object *corev1.Service) *External {
	externalIPs := p.addrs("spec.externalIPs", object.Spec.ExternalIPs)
	loadBalancerIPs := p.loadBalancerIPs(object)
	ranges := p.sourceRanges(object.Spec.LoadBalancerSourceRanges)
	if len(externalIPs)+len(loadBalancerIPs)+len(ranges) == 0 {
		return nil
	}
	if object.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return &External{Stray: loadBalancerIPs, ExternalIPs: externalIPs, SourceRanges: ranges}
	}
	return &External{LoadBalancerIPs: loadBalancerIPs, ExternalIPs: externalIPs, SourceRanges: ranges}
}

// loadBalancerIPs returns the addresses in status, except those whose traffic has to pass the load balancer itself
// (ipMode Proxy, KEP-1860). spec.loadBalancerIP is only a request to the cloud provider and is ignored.
func (p *parser) loadBalancerIPs(object *corev1.Service) []netip.Addr {
	var addrs []netip.Addr
	for i := range object.Status.LoadBalancer.Ingress {
		ingress := &object.Status.LoadBalancer.Ingress[i]
		if ingress.IP != "" && (ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP) {
			addrs = p.addr(addrs, path{list: "status.loadBalancer.ingress", index: i, name: "ip"}, ingress.IP)
		}
	}
	return distinct(addrs)
}

func (p *parser) affinity(config *corev1.SessionAffinityConfig) time.Duration {
	timeout := time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
	if config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		wanted := time.Duration(*config.ClientIP.TimeoutSeconds) * time.Second
		if wanted >= time.Second && wanted <= maxAffinity {
			return wanted
		}
		p.add(path{name: "spec.sessionAffinityConfig.clientIP.timeoutSeconds"}, "%d is not between 1 and %d; using %d",
			*config.ClientIP.TimeoutSeconds, maxAffinity/time.Second, timeout/time.Second)
	}
	return timeout
}

func (p *parser) preserveUDP(annotations map[string]string) bool {
	switch text := annotations[AnnotationUDPConnectionHandling]; text {
	case "", "Default":
		return false
	case "PreserveDuringTermination":
		return true
	default:
		p.add(path{name: "metadata.annotations[" + AnnotationUDPConnectionHandling + "]"}, "%q is not one of Default and PreserveDuringTermination", brief(text))
		return false
	}
}

func (p *parser) fastPath(annotations map[string]string) *bool {
	switch text := annotations[AnnotationFastPath]; text {
	case "":
		return nil
	case "true", "false":
		return new(text == "true")
	default:
		p.add(path{name: "metadata.annotations[" + AnnotationFastPath + "]"}, "%q is neither true nor false", brief(text))
		return nil
	}
}

// owner returns the Service that a slice belongs to; ok is false if the proxy must not use the slice.
func owner(object *discoveryv1.EndpointSlice) (name ServiceName, ok bool, found []*Problem) {
	if _, headless := object.Labels[corev1.IsHeadlessService]; headless {
		return ServiceName{}, false, nil
	}
	var p parser
	service := object.Labels[discoveryv1.LabelServiceName]
	switch object.AddressType {
	case discoveryv1.AddressTypeFQDN:
		return ServiceName{}, false, nil
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
	default:
		p.add(path{name: "addressType"}, "%q is not one of IPv4, IPv6 and FQDN", brief(string(object.AddressType)))
	}
	if service == "" {
		p.add(path{name: "metadata.labels"}, "it belongs to no Service; set the label %s", discoveryv1.LabelServiceName)
	}
	if p.count() > 0 {
		return ServiceName{}, false, p.all()
	}
	return ServiceName{Namespace: share(object.Namespace), Name: service}, true, nil
}

func (c *converter) slice(object *discoveryv1.EndpointSlice) (*EndpointSlice, []*Problem) {
	var p parser
	s := &EndpointSlice{Name: object.Name, Triggered: p.triggered(object)}
	weights, ignored := readWeights(object.Annotations)
	s.Ignored = ignored
	_, s.Foreign = object.Labels[LabelServiceProxyName]
	for i := range object.Ports {
		port := &object.Ports[i]
		at := path{list: "ports", index: i}
		if port.Name == nil || port.Port == nil {
			p.add(at, "it has no name or no port, so no Service can use it")
			continue
		}
		protocol, ok := p.protocol(at.field("protocol"), port.Protocol)
		number := p.port(at.field("port"), *port.Port, false)
		if ok && number != 0 {
			s.Ports = append(s.Ports, EndpointPort{Name: share(*port.Name), Protocol: protocol, Port: number})
		}
	}
	slices.SortStableFunc(s.Ports, EndpointPort.compare)
	s.Endpoints = make([]Endpoint, 0, len(object.Endpoints))
	for i := range object.Endpoints {
		endpoint := &object.Endpoints[i]
		if len(endpoint.Addresses) == 0 {
			p.add(path{list: "endpoints", index: i, name: "addresses"}, "it is empty")
			continue
		}
		addr, err := endpointAddr(object.AddressType, endpoint.Addresses[0])
		if err != nil {
			p.add(path{list: "endpoints", index: i, name: "addresses[0]"}, "%w", err)
			continue
		}
		s.Endpoints = append(s.Endpoints, Endpoint{Addr: addr, Conditions: c.conditions(endpoint), Weight: weights.weight(addr), Zones: zoneHints(endpoint)})
	}
	return s, p.all()
}

// endpointAddr parses an endpoint's address. It rejects addresses that would send traffic to the node itself or
// nowhere (CVE-2021-25737).
func endpointAddr(kind discoveryv1.AddressType, text string) (netip.Addr, error) {
	addr, err := ParseAddr(text)
	if err != nil {
		return netip.Addr{}, err
	}
	if addr.Is4() != (kind == discoveryv1.AddressTypeIPv4) {
		return netip.Addr{}, fmt.Errorf("%s is not of the slice's addressType %s", addr, kind)
	}
	if addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() {
		return netip.Addr{}, fmt.Errorf("%s is a loopback, link-local, multicast or unspecified address, which an endpoint must not have", addr)
	}
	return addr, nil
}

func (c *converter) conditions(e *discoveryv1.Endpoint) Conditions {
	var set Conditions
	add := func(condition Conditions, holds bool) {
		if holds {
			set |= condition
		}
	}
	add(Ready, ptr.Deref(e.Conditions.Ready, true))
	add(Serving, ptr.Deref(e.Conditions.Serving, true))
	add(Terminating, ptr.Deref(e.Conditions.Terminating, false))
	add(Local, e.NodeName != nil && *e.NodeName == c.nodeName && c.nodeName != "")
	add(NoNodeName, e.NodeName == nil || *e.NodeName == "")
	if e.Hints != nil {
		add(NodeHint, len(e.Hints.ForNodes) > 0)
		add(ThisNode, slices.ContainsFunc(e.Hints.ForNodes, func(n discoveryv1.ForNode) bool { return n.Name == c.nodeName }))
	}
	return set
}

func zoneHints(e *discoveryv1.Endpoint) Zones {
	if e.Hints == nil || len(e.Hints.ForZones) == 0 {
		return Zones{}
	}
	names := make([]string, len(e.Hints.ForZones))
	for i, zone := range e.Hints.ForZones {
		names[i] = zone.Name
	}
	return newZones(names)
}

// node leaves Addresses empty if the object has none, even if some are configured.
func (c *converter) node(object *corev1.Node) (*Node, []*Problem) {
	var p parser
	node := &Node{
		Name:     object.Name,
		Exists:   true,
		UID:      string(object.UID),
		Zone:     object.Labels[corev1.LabelTopologyZone],
		PodCIDRs: p.prefixes("spec.podCIDRs", object.Spec.PodCIDRs),
		Draining: object.DeletionTimestamp != nil ||
			slices.ContainsFunc(object.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintToBeDeleted }),
	}
	var addrs []netip.Addr
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i, address := range object.Status.Addresses {
			if address.Type == kind {
				addrs = p.addr(addrs, path{list: "status.addresses", index: i, name: "address"}, address.Address)
			}
		}
	}
	if len(addrs) > 0 {
		node.Addresses = firstOfEachFamily(slices.Concat(c.nodeAddrs, addrs))
	}
	return node, p.all()
}

// firstOfEachFamily returns the first address, and the first one of the other family.
func firstOfEachFamily(addrs []netip.Addr) []netip.Addr {
	var first []netip.Addr
	for _, addr := range addrs {
		if !slices.ContainsFunc(first, func(a netip.Addr) bool { return FamilyOf(a) == FamilyOf(addr) }) {
			first = append(first, addr)
		}
	}
	return first
}

func serviceCIDR(object *networkingv1.ServiceCIDR) ([]netip.Prefix, []*Problem) {
	var p parser
	return p.prefixes("spec.cidrs", object.Spec.CIDRs), p.all()
}

// addrs parses addresses and removes duplicates. It preserves the order.
func (p *parser) addrs(field string, texts []string) []netip.Addr {
	var addrs []netip.Addr
	for i, text := range texts {
		addrs = p.addr(addrs, path{list: field, index: i}, text)
	}
	return distinct(addrs)
}

// addr parses an address and appends it.
func (p *parser) addr(to []netip.Addr, field path, text string) []netip.Addr {
	addr, err := ParseAddr(text)
	if err != nil {
		p.add(field, "%w", err)
		return to
	}
	return append(to, addr)
}

// distinct removes duplicates and preserves the order. An author may list as many addresses as fit into an object, so the
// time must not grow with the square of their number.
func distinct(addrs []netip.Addr) []netip.Addr {
	if len(addrs) < 2 { // the common case
		return addrs
	}
	seen := make(map[netip.Addr]bool, len(addrs))
	return slices.DeleteFunc(addrs, func(addr netip.Addr) bool {
		again := seen[addr]
		seen[addr] = true
		return again
	})
}

// prefixes parses CIDRs, sorts them and removes duplicates. Like the API's validation it ignores surrounding spaces.
func (p *parser) prefixes(field string, texts []string) []netip.Prefix {
	var prefixes []netip.Prefix
	for i, text := range texts {
		prefix, err := ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			p.add(path{list: field, index: i}, "%w", err)
			continue
		}
		prefixes = append(prefixes, prefix)
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes)
}

// matchNone are ranges that contain no source address. They replace ranges that cannot be parsed.
var matchNone = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 32), netip.PrefixFrom(netip.IPv6Unspecified(), 128)}

// sourceRanges parses loadBalancerSourceRanges. If a range cannot be parsed, a family without any other range admits
// no source: the author of the Service wanted a restriction.
func (p *parser) sourceRanges(texts []string) []netip.Prefix {
	known := p.count()
	ranges := p.prefixes("spec.loadBalancerSourceRanges", texts)
	if p.count() == known {
		return ranges
	}
	for _, none := range matchNone {
		if !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is4() == none.Addr().Is4() }) {
			ranges = append(ranges, none)
		}
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	return ranges
}

// port parses a port number. 0 is valid only if mayBeUnset.
func (p *parser) port(field path, number int32, mayBeUnset bool) uint16 {
	if number > 0 && number <= math.MaxUint16 {
		return uint16(number)
	}
	if number != 0 || !mayBeUnset {
		p.add(field, "%d is not a port number", number)
	}
	return 0
}

// protocol parses a protocol; the default is TCP.
func (p *parser) protocol(field path, value *corev1.Protocol) (Protocol, bool) {
	if value == nil || *value == "" {
		return TCP, true
	}
	protocol, ok := ParseProtocol(string(*value))
	if !ok {
		p.add(field, "%q is not one of TCP, UDP and SCTP", brief(string(*value)))
	}
	return protocol, ok
}

func (p *parser) triggered(object *discoveryv1.EndpointSlice) int64 {
	text, ok := object.Annotations[corev1.EndpointsLastChangeTriggerTime]
	if !ok {
		return 0
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		p.add(path{name: "metadata.annotations." + corev1.EndpointsLastChangeTriggerTime}, "%q is not an RFC 3339 time", brief(text))
		return 0
	}
	return at.UnixMicro()
}

// share returns the canonical copy of a string, which all objects use.
func share(s string) string { return unique.Make(s).Value() }
