package cluster

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Snapshot is the cluster at one moment, as far as a service proxy has to know it. It never changes.
type Snapshot struct {
	// Services holds every Service that a proxy may have to serve, with its endpoints. Headless ones,
	// ExternalNames and those of another proxy are not among them.
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

// Service is what traffic to a Service is decided by, and the endpoints it has in the whole cluster.
type Service struct {
	Name ServiceName
	// UID tells the object from an earlier or later one of the same name; events name it. Empty without an API server.
	UID string
	// Created is the object's creation time: of two Services that claim one address, the older has it.
	Created time.Time

	// ClusterIPs are allocated by the API server: at most one of each family.
	ClusterIPs []netip.Addr
	// LoadBalancerIPs are the addresses acknowledged in status with ipMode VIP (KEP-1860).
	LoadBalancerIPs []netip.Addr
	// ExternalIPs are the addresses that whoever wrote the Service asked for; nobody acknowledged them.
	ExternalIPs []netip.Addr
	// Ports are as the object lists them. Names are unique in a Service; a sole port may have none.
	Ports []ServicePort

	// InternalPolicy applies to cluster IPs, ExternalPolicy to every other address (KEP-2086).
	InternalPolicy, ExternalPolicy Policy
	// Affinity is how long a client stays with its endpoint after its last connection; 0 is no affinity.
	Affinity time.Duration
	// SourceRanges restrict who may use LoadBalancerIPs; a family without a range is unrestricted.
	SourceRanges []netip.Prefix
	// HealthCheckNodePort is where load balancers ask whether this node has local endpoints; 0 is nowhere.
	HealthCheckNodePort uint16

	// Slices are the EndpointSlices of the Service, sorted by name.
	Slices []*EndpointSlice
}

// InFamily reports whether the Service exists in a family: whether it has a cluster IP of it.
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

// EndpointSlice is a part of a Service's endpoints that the API server changes as one (KEP-752).
type EndpointSlice struct {
	Name      string
	Ports     []EndpointPort
	Endpoints []Endpoint
	// Triggered is when the change of pods happened that led to this version of the slice, as the
	// annotation endpoints.kubernetes.io/last-change-trigger-time tells; zero where it does not.
	Triggered time.Time
}

// EndpointPort is a port that every endpoint of a slice listens on. It belongs to the Service's port of the
// same name and protocol.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Endpoint is one address that traffic may be sent to.
type Endpoint struct {
	Addr netip.Addr
	// Conditions tell the endpoint's state and place.
	Conditions Conditions
	// Zones are the zones that this endpoint is meant for (hints.forZones); nil without such a hint.
	Zones *Zones
}

// Conditions is a set of what is known of an endpoint.
type Conditions uint8

// The conditions of an Endpoint. Ready implies that it should get traffic; Serving that it could, while it
// terminates (KEP-1669); Local that it runs on this node. NodeHint tells that hints.forNodes names any node,
// ThisNode that it names this one (KEP-3015).
const (
	Ready Conditions = 1 << iota
	Serving
	Terminating
	Local
	NodeHint
	ThisNode
)

// Has tells whether all of the given conditions hold.
func (c Conditions) Has(all Conditions) bool { return c&all == all }

// Zones is a set of zone names. Equal sets are one pointer within a Builder's life.
type Zones struct {
	names []string
}

// Has tells whether the set names the zone.
func (z *Zones) Has(zone string) bool {
	if z == nil {
		return false
	}
	return slices.Contains(z.names, zone)
}

// Node is the node that this proxy runs on.
type Node struct {
	Name string
	// Exists tells that there is such an object. What it said last stays in force when it is deleted.
	Exists bool
	// Addresses are the node's own, at most one of each family, the primary one first: those that the Builder was
	// made with, then the first of a family among the object's InternalIPs and then its ExternalIPs. None are known
	// of a Node that a cloud's controller has not initialized yet.
	Addresses []netip.Addr
	// Interfaces are the addresses that this machine's interfaces bear, sorted.
	Interfaces []netip.Addr
	// PodCIDRs are the ranges that this node's pods get their addresses from.
	PodCIDRs []netip.Prefix
	// Zone is the label topology.kubernetes.io/zone; empty without it.
	Zone string
	// Draining tells that load balancers should leave this node: it is being deleted, or the cluster
	// autoscaler's taint says that it will be (KEP-3836).
	Draining bool
}

// Primary returns the family of the node's primary address, and false while no address is known.
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

// Policy tells which endpoints traffic may be sent to.
type Policy uint8

// The two traffic policies: Cluster sends to any endpoint, Local only to those on this node.
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

// MarshalText makes a list of families an array of their names in a log in JSON.
func (f Family) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// FamilyOf is the family of an address, which must be valid and not IPv4-mapped.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}
