package cluster

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"
)

// Snapshot is the part of the cluster's state that a service proxy needs, at one moment. It is immutable.
type Snapshot struct {
	// Services holds every Service that a proxy may have to serve, with its endpoints. It excludes headless Services,
	// ExternalNames and those of other proxies.
	Services Map[ServiceName, *Service]
	// ServiceCIDRs are the ranges that cluster IPs are allocated from, sorted (KEP-1880).
	ServiceCIDRs []netip.Prefix
	// Node is the node that this proxy runs on; never nil.
	Node *Node
}

// ServiceName names a Service.
type ServiceName struct {
	Namespace, Name string
}

// Compare sorts by namespace, then name.
func (n ServiceName) Compare(o ServiceName) int {
	if c := strings.Compare(n.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(n.Name, o.Name)
}

func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

// ParseServiceName parses what String returns. It is not ok for any other text.
func ParseServiceName(text string) (n ServiceName, ok bool) {
	n.Namespace, n.Name, ok = strings.Cut(text, "/")
	return n, ok && n.Namespace != "" && n.Name != "" && !strings.Contains(n.Name, "/")
}

// Service holds the fields of a Service that affect its traffic, and its endpoints in the whole cluster.
type Service struct {
	Name ServiceName
	// UID distinguishes the object from an earlier or later one of the same name; events refer to it. Empty without
	// an API server.
	UID string
	// Created is the object's creation time in microseconds since 1970, 0 without one: if two Services claim the same address,
	// the older one gets it.
	Created int64

	// ClusterIPs are allocated by the API server, at most one of each family.
	ClusterIPs []netip.Addr
	// Ports are in the order of the object. Names are unique in a Service; a single port may have none.
	Ports []ServicePort

	// External is nil if all its lists are empty, as for most Services.
	External *External
	// InternalPolicy applies to cluster IPs, ExternalPolicy to every other address (KEP-2086).
	InternalPolicy, ExternalPolicy Policy
	// PreserveUDP requests that UDP flows stay with an endpoint while it terminates (AnnotationUDPConnectionHandling).
	PreserveUDP bool
	// Algorithm is the requested algorithm of load balancing. Ignored says why the annotation cannot be read; "" if it can.
	Algorithm Algorithm
	Ignored   string
	// Fence is nil unless the Service asks for bounds of its connections.
	Fence *AskedFence
	// FastPath requests or refuses the fast path for long connections (AnnotationFastPath); nil without the annotation.
	FastPath *bool
	// HealthCheckNodePort is where load balancers check whether this node has local endpoints; 0 if they do not.
	HealthCheckNodePort uint16
	// Affinity is how long a client keeps its endpoint after its last connection; 0 disables affinity.
	Affinity time.Duration

	// Slices are the EndpointSlices of the Service, sorted by name.
	Slices []*EndpointSlice
}

// External are a Service's addresses for clients outside the cluster, besides those of nodes, and their restriction.
type External struct {
	// LoadBalancerIPs are the addresses in status with ipMode VIP (KEP-1860), which a controller wrote.
	LoadBalancerIPs []netip.Addr
	// Stray are such addresses of a Service that is not of type LoadBalancer. They are not served.
	Stray []netip.Addr
	// ExternalIPs are the addresses in spec, which no controller has confirmed (CVE-2020-8554).
	ExternalIPs []netip.Addr
	// SourceRanges restrict the clients of LoadBalancerIPs; a family without a range is unrestricted.
	SourceRanges []netip.Prefix
}

// LoadBalancerIPs returns those of External, or nil without it.
func (s *Service) LoadBalancerIPs() []netip.Addr { return s.external().LoadBalancerIPs }

// Stray returns those of External, or nil without it.
func (s *Service) Stray() []netip.Addr { return s.external().Stray }

// ExternalIPs returns those of External, or nil without it.
func (s *Service) ExternalIPs() []netip.Addr { return s.external().ExternalIPs }

// SourceRanges returns those of External, or nil without it.
func (s *Service) SourceRanges() []netip.Prefix { return s.external().SourceRanges }

func (s *Service) external() (e External) {
	if s.External != nil {
		e = *s.External
	}
	return e
}

// InFamily reports whether the Service has a cluster IP of a family.
func (s *Service) InFamily(family Family) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(a netip.Addr) bool { return FamilyOf(a) == family })
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	NodePort uint16 // 0 is none
}

// EndpointSlice is a part of a Service's endpoints; the API server changes it as a unit (KEP-752).
type EndpointSlice struct {
	Name string
	// Ports are sorted by name and protocol.
	Ports     []EndpointPort
	Endpoints []Endpoint
	// Triggered is the time of the pod change that led to this version of the slice, in microseconds since 1970, from the
	// annotation endpoints.kubernetes.io/last-change-trigger-time; 0 without one.
	Triggered int64
	// Ignored says why the weights of the endpoints cannot be read; "" if they can.
	Ignored string
	// Foreign slices bear the label of Services for another proxy: Unowned leaves them out.
	Foreign bool
}

// PortOf returns the slice's port for a Service's port: ports belong together by name and protocol.
func (s *EndpointSlice) PortOf(port *ServicePort) (EndpointPort, bool) {
	at, found := slices.BinarySearchFunc(s.Ports, EndpointPort{Name: port.Name, Protocol: port.Protocol}, EndpointPort.compare)
	if !found {
		return EndpointPort{}, false
	}
	return s.Ports[at], true
}

// EndpointPort is a port that every endpoint of a slice listens on. It belongs to the Service's port of the
// same name and protocol.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// compare sorts by name and protocol.
func (p EndpointPort) compare(o EndpointPort) int {
	return cmp.Or(strings.Compare(p.Name, o.Name), cmp.Compare(p.Protocol, o.Protocol))
}

// Endpoint is one address that traffic may be sent to.
type Endpoint struct {
	Addr netip.Addr
	// Conditions are the endpoint's state and location.
	Conditions Conditions
	// Weight is how many connections the endpoint gets, in proportion to those of others; 0 is no new ones.
	Weight Weight
	// Zones are the zones that may use this endpoint (hints.forZones); the zero value without such a hint.
	Zones Zones
}

// Conditions is a set of facts about an endpoint.
type Conditions uint8

// The conditions of an Endpoint. Ready means that it should get traffic; Serving that it could while terminating
// (KEP-1669); Local that it runs on this node; NoNodeName that the slice does not say where it runs. NodeHint means that
// hints.forNodes names any node, ThisNode that it names this one (KEP-3015).
const (
	Ready Conditions = 1 << iota
	Serving
	Terminating
	Local
	NodeHint
	ThisNode
	NoNodeName
)

// Has reports whether all of the given conditions hold.
func (c Conditions) Has(all Conditions) bool { return c&all == all }

// Zones is a set of zone names. Equal sets are equal by ==, and share their memory. The zero value is no hint at all.
type Zones struct {
	// names are sorted, distinct and joined by zoneSeparator.
	names unique.Handle[string]
}

// zoneSeparator cannot be a part of a zone's name, which is the value of a label.
const zoneSeparator = "\x00"

// newZones returns a set. It modifies names.
func newZones(names []string) Zones {
	slices.Sort(names)
	return Zones{unique.Make(strings.Join(slices.Compact(names), zoneSeparator))}
}

// Any reports whether there is a hint.
func (z Zones) Any() bool { return z != Zones{} }

// Has reports whether the set contains the zone.
func (z Zones) Has(zone string) bool {
	if !z.Any() {
		return false
	}
	for name := range strings.SplitSeq(z.names.Value(), zoneSeparator) {
		if name == zone {
			return true
		}
	}
	return false
}

// Names returns the zones, sorted; nil without a hint.
func (z Zones) Names() []string {
	if !z.Any() {
		return nil
	}
	return strings.Split(z.names.Value(), zoneSeparator)
}

// Node is the node that this proxy runs on.
type Node struct {
	Name string
	// Exists reports whether the Node object exists. Its last values remain in use when it is deleted.
	Exists bool
	// UID distinguishes the object from another of the same name. Empty without an API server.
	UID string
	// Addresses has at most one address of each family, the primary one first: those passed to NewBuilder, then the
	// first one of a family among the object's InternalIPs and then its ExternalIPs. The object has none until the
	// cloud provider has initialized the Node.
	Addresses []netip.Addr
	// Interfaces are the addresses of this machine's interfaces, sorted.
	Interfaces []netip.Addr
	// Devices are those interfaces of this machine on which IP packets arrive, sorted; empty without a source of them.
	Devices []Device
	// PodCIDRs are the ranges of this node's pods.
	PodCIDRs []netip.Prefix
	// Zone is the label topology.kubernetes.io/zone; empty without one.
	Zone string
	// Draining means that load balancers should avoid this node: it is being deleted, or it has the cluster
	// autoscaler's taint (KEP-3836).
	Draining bool
}

// Device is a network interface of this machine. Another one of the same name has another index.
type Device struct {
	Name  string
	Index int
}

// Primary returns the family of the node's primary address, and false if no address is known.
func (n *Node) Primary() (Family, bool) {
	if len(n.Addresses) == 0 {
		return 0, false
	}
	return FamilyOf(n.Addresses[0]), true
}

// Address returns the node's address of a family, and false if none is known.
func (n *Node) Address(family Family) (netip.Addr, bool) {
	for _, addr := range n.Addresses {
		if FamilyOf(addr) == family {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// Policy is a traffic policy: it selects the endpoints that traffic may be sent to.
type Policy uint8

// The traffic policies: Cluster sends to any endpoint, Local only to endpoints on this node.
const (
	PolicyCluster Policy = iota
	PolicyLocal
)

func (p Policy) String() string {
	if p == PolicyLocal {
		return "Local"
	}
	return "Cluster"
}

// Protocol is a transport protocol by its IANA number.
type Protocol uint8

// The protocols that a Service may have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	default:
		return "unknown"
	}
}

// ParseProtocol parses what String returns. It is not ok for any other text.
func ParseProtocol(text string) (p Protocol, ok bool) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if text == p.String() {
			return p, true
		}
	}
	return 0, false
}

// Family is an address family.
type Family uint8

// The two address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Unspecified returns the address that stands for all addresses of a machine.
func (f Family) Unspecified() netip.Addr {
	if f == IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// MarshalText returns the name, so that a list of families is an array of names in a JSON log.
func (f Family) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// FamilyOf returns the family of an address, which must be valid and not IPv4-mapped.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}
