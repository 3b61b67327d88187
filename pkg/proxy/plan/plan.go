package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Plan is what the dataplane of this node should do. It never changes.
type Plan struct {
	// Services is what each Service asks for, by itself.
	Services cluster.Map[cluster.ServiceName, *Service]
	// Frontends is what will be served: one route for every frontend.
	Frontends cluster.Map[Frontend, *Route]
	// Contested are the frontends that several Services claim. The first claim is served; Why reports the reason.
	Contested cluster.Map[Frontend, *Claims]
	// ClusterIPs counts the Services that have a cluster IP: its undefined ports are rejected.
	ClusterIPs cluster.Map[netip.Addr, int]
	// Hairpins counts the Services that may send a connection to an address on this node. A connection from
	// such an address to itself must be masqueraded, or its answer would never pass the node.
	Hairpins cluster.Map[netip.Addr, int]
	// Node is what holds for the node as a whole.
	Node *Node

	snapshot *cluster.Snapshot
	options  *Options
}

// Service is what one Service asks for.
type Service struct {
	Name cluster.ServiceName
	// UID tells the object from another of the same name; events name it. Empty without an API server.
	UID string
	// Created decides between claims of the same kind for one frontend: the older Service is served.
	Created time.Time
	// Routes are sorted by frontend.
	Routes []*Route
	// ClusterIPs are the Service's own.
	ClusterIPs []netip.Addr
	// LocalAddrs are the addresses of this node's endpoints that a route may use, sorted.
	LocalAddrs []netip.Addr
	// Serving tells which endpoints may keep their flows: for every UDP port in each family that it has an address of.
	Serving []Serving
	// HealthCheck is nil unless load balancers ask whether this node has endpoints.
	HealthCheck *HealthCheck
	// WithheldExternalIPs is the number of external IPs that are not served because nobody acknowledged them.
	WithheldExternalIPs int
}

// Frontend is an address, protocol and port that a packet can meet. A node port's address is unspecified
// (0.0.0.0 or ::) and stands for every address in Node.NodePortAddrs of that family.
type Frontend struct {
	Addr     netip.Addr
	Protocol cluster.Protocol
	Port     uint16
}

// Compare sorts by family, address, protocol and port.
func (f Frontend) Compare(o Frontend) int {
	if c := f.Addr.Compare(o.Addr); c != 0 {
		return c
	}
	if c := cmp.Compare(f.Protocol, o.Protocol); c != 0 {
		return c
	}
	return cmp.Compare(f.Port, o.Port)
}

// Family is the address family of the frontend.
func (f Frontend) Family() cluster.Family { return cluster.FamilyOf(f.Addr) }

// IsNodePort tells whether the frontend is a port on the node's own addresses.
func (f Frontend) IsNodePort() bool { return f.Addr.IsUnspecified() }

func (f Frontend) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Addr, f.Port), f.Protocol)
}

// Kind is what a frontend is to its Service.
type Kind uint8

// The kinds of frontends. Where Services claim the same address, an earlier kind beats a later one: a cluster IP is
// allocated by the API server, a load balancer IP is acknowledged by a controller, and an external IP is only asked for
// by the Service's author (CVE-2020-8554). Node ports have no address of their own and meet only other node ports.
const (
	ClusterIP Kind = iota
	LoadBalancerIP
	ExternalIP
	NodePort
)

func (k Kind) String() string {
	return [...]string{"cluster IP", "load balancer IP", "external IP", "node port"}[k]
}

// Route is what happens to new connections that meet a frontend.
type Route struct {
	Frontend Frontend
	Kind     Kind
	// Service and Port say whose frontend it is; Name is both as users write them: namespace/name:port.
	Service cluster.ServiceName
	Port    string
	Name    string
	// Policy is the traffic policy that chose Pool.
	Policy cluster.Policy
	// Pool is where connections go. Where it is empty, Verdict tells what they meet instead.
	Pool *Pool
	// ShortCut is where connections from local pods and from the node itself go under an external Local
	// policy: they need no source address kept, so any endpoint may serve them. Nil for everything else.
	ShortCut *Pool
	// Masquerade tells which connections to Pool get the node's source address. Of those to ShortCut it is
	// always just the node's own.
	Masquerade Masquerade
	// Verdict is what connections meet that no pool takes.
	Verdict Verdict
	// Affinity is how long a client stays with its endpoint after its last connection; 0 is not at all.
	Affinity time.Duration
	// SourceRanges are the only sources let in, of the frontend's family; empty lets in everybody.
	SourceRanges []netip.Prefix
	// RejectOnLocalhost tells that connections to the node port on a loopback address are rejected.
	RejectOnLocalhost bool
}

// Reason tells why connections that meet the frontend fare as they do.
func (r *Route) Reason() Reason { return r.Pool.Reason }

func (r *Route) equal(o *Route) bool {
	return r.Frontend == o.Frontend && r.Kind == o.Kind && r.Name == o.Name && r.Policy == o.Policy &&
		r.Pool.equal(o.Pool) && r.ShortCut.equal(o.ShortCut) &&
		r.Masquerade == o.Masquerade && r.Verdict == o.Verdict && r.Affinity == o.Affinity &&
		slices.Equal(r.SourceRanges, o.SourceRanges) && r.RejectOnLocalhost == o.RejectOnLocalhost
}

// Pool is the endpoints that share a frontend's connections, each with the same chance.
type Pool struct {
	// Endpoints are distinct and sorted.
	Endpoints []netip.AddrPort
	Reason    Reason
}

func (p *Pool) equal(o *Pool) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Reason == o.Reason && slices.Equal(p.Endpoints, o.Endpoints)
}

// Masquerade tells which connections get the node's address as their source.
type Masquerade uint8

// Who is masqueraded: nobody; whoever is not local traffic (Node.LocalTraffic), since the answer has to come
// back through this node; everybody.
const (
	MasqueradeNone Masquerade = iota
	MasqueradeOffCluster
	MasqueradeAll
)

func (m Masquerade) String() string {
	return [...]string{"none", "off-cluster sources", "all"}[m]
}

// Verdict is the fate of a connection.
type Verdict uint8

// Balance sends it to an endpoint; Reject answers that nobody is there; Drop leaves it without an answer, as
// an external load balancer expects of a node that has no endpoint. Pass leaves it alone: it is for no Service.
const (
	Balance Verdict = iota
	Reject
	Drop
	Pass
)

func (v Verdict) String() string { return [...]string{"balance", "reject", "drop", "pass"}[v] }

// Node is what holds for the node as a whole.
type Node struct {
	// NodePortAddrs are the addresses on which node ports are served, sorted.
	NodePortAddrs []netip.Addr
	// LocalTraffic tells local pods' connections from others.
	LocalTraffic LocalTraffic
	// Addrs are the addresses of this machine, sorted: a connection from one of them is the node's own.
	Addrs []netip.Addr
	// ServiceCIDRs are the ranges of cluster IPs: connections to an address in them that no Service has are
	// dropped, those to an undefined port of one that a Service has are rejected.
	ServiceCIDRs []netip.Prefix
}

func (n *Node) equal(o *Node) bool {
	return slices.Equal(n.NodePortAddrs, o.NodePortAddrs) && n.LocalTraffic.equal(o.LocalTraffic) &&
		slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.ServiceCIDRs, o.ServiceCIDRs)
}
