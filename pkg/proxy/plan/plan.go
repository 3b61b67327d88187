package plan

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Plan is the desired state of this node's dataplane. It is immutable.
type Plan struct {
	// Services holds the decisions about each Service by itself.
	Services cluster.Map[cluster.ServiceName, *Service]
	// Frontends holds the route of every frontend that is served.
	Frontends cluster.Map[Frontend, *Route]
	// Contested holds the frontends that several Services claim. The first claim is served; Why returns the reason.
	Contested cluster.Map[Frontend, *Claims]
	// ClusterIPs counts the Services that have a cluster IP. Connections to its undefined ports are rejected.
	ClusterIPs cluster.Map[netip.Addr, int]
	// Hairpins counts the Services that have an address among their HairpinAddrs, for backends that match connections
	// after translation.
	Hairpins cluster.Map[netip.Addr, int]
	// LocalPods counts the Services that have a usable endpoint on this node at an address.
	LocalPods cluster.Map[netip.Addr, int]
	// Canary are the routes of Frontends that are the proxy's own, by which it tries its rules.
	Canary []*Route
	// Node holds the settings for the node as a whole.
	Node *Node

	// snapshot is what the plan implements: the one that it was made from, but with an earlier version of what waits.
	snapshot *cluster.Snapshot
	options  *Options
	// waiting is sorted by turn; turn is the last one that was taken.
	waiting []waiting
	turn    uint64
}

// Meets returns the frontends that match packets to an address and port, in order: the first one with a route
// applies.
func (p *Plan) Meets(to netip.AddrPort, protocol cluster.Protocol) iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
		frontend := Frontend{Addr: to.Addr(), Protocol: protocol, Port: to.Port()}
		if !yield(frontend) {
			return
		}
		if _, served := slices.BinarySearchFunc(p.Node.NodePortAddrs, frontend.Addr, netip.Addr.Compare); served {
			frontend.Addr = frontend.Family().Unspecified()
			yield(frontend)
		}
	}
}

// RouteTo returns the route for packets to an address and port; nil if there is none.
func (p *Plan) RouteTo(to netip.AddrPort, protocol cluster.Protocol) *Route {
	for frontend := range p.Meets(to, protocol) {
		if route, ok := p.Frontends.Get(frontend); ok {
			return route
		}
	}
	return nil
}

// Service holds the decisions about one Service.
type Service struct {
	Name cluster.ServiceName
	// UID distinguishes the object from another of the same name; events refer to it. Empty without an API server.
	UID string
	// Created decides between claims of the same kind for one frontend: the older Service is served. It is as in cluster.Service.
	Created int64
	// Routes are sorted by frontend.
	Routes []*Route
	// ClusterIPs are the Service's own.
	ClusterIPs []netip.Addr
	// rare is nil if it would be empty, as for most Services.
	rare *rareLists
	// HealthCheck is nil unless load balancers check whether this node has endpoints.
	HealthCheck *HealthCheck
	// KeepsTerminating lets UDP flows stay with endpoints that terminate, whether or not these still serve.
	KeepsTerminating bool
	// WithheldExternalIPs is the number of external IPs that are not served because Options.ServeExternalIPs is off.
	WithheldExternalIPs uint32
	// WithheldPorts is the number of ports that are not served because the Service would need too many elements: the last
	// ones of the Service.
	WithheldPorts uint32
}

// rareLists are the lists that few Services have.
type rareLists struct {
	hairpinAddrs []netip.Addr
	localPods    []netip.Addr
	serving      []Serving
	unbalanced   string
	unfenced     string
}

// HairpinAddrs returns the addresses of usable endpoints that are on this node, or may be: their slice names no node, or this node's
// pods have such addresses; sorted. A connection from such an address that is sent back to it must be masqueraded, or its replies
// would bypass the node.
func (s *Service) HairpinAddrs() []netip.Addr {
	if s == nil || s.rare == nil { // the canary has no Service
		return nil
	}
	return s.rare.hairpinAddrs
}

// localPods returns the addresses of usable endpoints that are on this node.
func (s *Service) localPods() []netip.Addr {
	if s.rare == nil {
		return nil
	}
	return s.rare.localPods
}

// Unbalanced returns why connections are not balanced as the annotations of the Service and its slices say; "" if they are, or if there are none.
func (s *Service) Unbalanced() string {
	if s.rare == nil {
		return ""
	}
	return s.rare.unbalanced
}

// Unfenced returns why connections are not bounded as the Service's annotation says; "" if they are, or if there is none.
func (s *Service) Unfenced() string {
	if s.rare == nil {
		return ""
	}
	return s.rare.unfenced
}

// Fence returns the bounds of the Service's connections; nil if there are none, or if it has no address.
func (s *Service) Fence() *cluster.Fence {
	if len(s.Routes) == 0 {
		return nil
	}
	return s.Routes[0].Fence
}

// Serving returns the endpoints of existing flows, for each UDP port in each family of the Service, sorted by port and family.
func (s *Service) Serving() []Serving {
	if s.rare == nil {
		return nil
	}
	return s.rare.serving
}

// Frontend is a destination address, protocol and port. A node port's address is unspecified (0.0.0.0 or ::) and
// represents every address in Node.NodePortAddrs of that family.
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

// Family returns the address family of the frontend.
func (f Frontend) Family() cluster.Family { return cluster.FamilyOf(f.Addr) }

// IsNodePort reports whether the frontend is a port on the node's own addresses.
func (f Frontend) IsNodePort() bool { return f.Addr.IsUnspecified() }

func (f Frontend) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Addr, f.Port), f.Protocol)
}

// Kind is the role of a frontend's address in its Service.
type Kind uint8

// The kinds of frontends. If Services claim the same address, an earlier kind takes precedence: a cluster IP is
// allocated by the API server, a load balancer IP is set by a controller, and an external IP only by the Service's
// author (CVE-2020-8554). Node ports have no address of their own and conflict only with node ports.
const (
	ClusterIP Kind = iota
	LoadBalancerIP
	ExternalIP
	NodePort
)

func (k Kind) String() string {
	return [...]string{"cluster IP", "load balancer IP", "external IP", "node port"}[k]
}

// oneOf returns the kind with its article.
func (k Kind) oneOf() string {
	if k == ExternalIP {
		return "an " + k.String()
	}
	return "a " + k.String()
}

// Route is how new connections to a frontend are handled.
type Route struct {
	Frontend Frontend
	Service  cluster.ServiceName
	// Name is namespace/name:port of the Service's port, or namespace/name if the port has no name.
	Name string
	// Pool holds the endpoints of connections. If it is empty, Verdict is what happens to them instead.
	Pool *Pool
	// ShortCut holds the endpoints of connections from local pods and the node itself to an external address with
	// policy Local: their source address need not be preserved, so any endpoint may serve them. Nil otherwise.
	ShortCut *Pool
	// Affinity is the port's session affinity; nil is none.
	Affinity *Affinity
	// SourceRanges are the allowed sources, of the frontend's family, disjoint and sorted; empty allows all.
	SourceRanges []netip.Prefix
	// Fence bounds the connections of the Service, of all its routes of a family together; nil is no bound. What exceeds it is dropped.
	Fence *cluster.Fence
	Kind  Kind // from here on, each field is a byte: there are as many Routes as addresses and ports
	// Policy is the traffic policy by which Pool was chosen.
	Policy cluster.Policy
	// Masquerade selects the connections to Pool that get the node's source address. Connections to ShortCut get it
	// only if they come from the node itself.
	Masquerade Masquerade
	// Verdict is what happens to connections that use Pool: Balance, or Reject or Drop if the pool is empty.
	Verdict Verdict
	// RejectOnLocalhost rejects connections to the node port on loopback addresses.
	RejectOnLocalhost bool
	// FastPath sends later packets of long connections from one device of the node to another past all rules.
	FastPath bool
}

// FastPathAfter is the number of packets of a connection, in both directions together, that take the usual path: it costs more to begin a
// fast path than a short connection can gain.
const FastPathAfter = 20

// Port returns the name of the Service's port, which may be empty.
func (r *Route) Port() string {
	service := len(r.Service.Namespace) + len("/") + len(r.Service.Name)
	if len(r.Name) == service {
		return ""
	}
	return r.Name[service+len(":"):]
}

// Address describes the route's frontend as users know it: a node port has no address.
func (r *Route) Address() string {
	if r.Frontend.IsNodePort() {
		return fmt.Sprintf("%s %d/%s (%s)", r.Kind, r.Frontend.Port, r.Frontend.Protocol, r.Frontend.Family())
	}
	return r.Kind.String() + " " + r.Frontend.String()
}

// Reason returns why the pool has its endpoints.
func (r *Route) Reason() Reason { return r.Pool.Reason }

func (r *Route) equal(o *Route) bool {
	return r.Frontend == o.Frontend && r.Kind == o.Kind && r.Name == o.Name && r.Policy == o.Policy &&
		r.Pool.equal(o.Pool) && r.ShortCut.equal(o.ShortCut) &&
		r.Masquerade == o.Masquerade && r.Verdict == o.Verdict && r.Affinity.equal(o.Affinity) &&
		slices.Equal(r.SourceRanges, o.SourceRanges) && ptr.Equal(r.Fence, o.Fence) && r.RejectOnLocalhost == o.RejectOnLocalhost && r.FastPath == o.FastPath
}

// Affinity is the session affinity of a Service's port in one family. All its routes have the same, unless a
// change of the Service is included in part.
type Affinity struct {
	// Timeout is how long a client keeps its endpoint after its last connection.
	Timeout time.Duration
	// Everywhere and Here are the pools of the policies Cluster and Local, also of a policy that no address has: so a backend
	// can remember clients for both, and they keep their endpoints when a policy changes.
	Everywhere, Here *Pool
	// Clients is how many clients each pool may have: the ports of a Service share what nobody else may use.
	Clients int
}

// For returns how long a client keeps its endpoint; 0 is not at all.
func (a *Affinity) For() time.Duration {
	if a == nil {
		return 0
	}
	return a.Timeout
}

// alike reports whether clients are remembered in the same way, whatever their endpoints are.
func (a *Affinity) alike(o *Affinity) bool {
	if a == nil || o == nil {
		return a == o
	}
	return a.Timeout == o.Timeout && a.Clients == o.Clients
}

func (a *Affinity) equal(o *Affinity) bool {
	if a == nil || o == nil {
		return a == o
	}
	return a.alike(o) && a.Everywhere.equal(o.Everywhere) && a.Here.equal(o.Here)
}

// Pool is the list of endpoints that connections are distributed to.
type Pool struct {
	// Endpoints are distinct and sorted.
	Endpoints []netip.AddrPort
	Reason    Reason
	// Spread is how connections are spread over the endpoints; nil if each is picked at random with the same probability, as nearly always.
	Spread *Spread
}

// endpoints returns the endpoints of a pool, which may be nil.
func (p *Pool) endpoints() []netip.AddrPort {
	if p == nil {
		return nil
	}
	return p.Endpoints
}

// has reports whether the pool, which may be nil, contains an endpoint.
func (p *Pool) has(endpoint netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(p.endpoints(), endpoint, netip.AddrPort.Compare)
	return found
}

func (p *Pool) equal(o *Pool) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Reason == o.Reason && slices.Equal(p.Endpoints, o.Endpoints) && p.Spread.equal(o.Spread)
}

// Masquerade selects the connections that get the node's address as their source.
type Masquerade uint8

// No connections; those that are not local traffic (see Node.LocalTraffic), whose replies must return through this
// node; all connections.
const (
	MasqueradeNone Masquerade = iota
	MasqueradeOffCluster
	MasqueradeAll
)

func (m Masquerade) String() string {
	return [...]string{"none", "off-cluster sources", "all"}[m]
}

// Verdict is what happens to a connection.
type Verdict uint8

// Balance sends it to an endpoint. Reject answers with an error. Drop discards it silently, as external
// load balancers expect of a node without endpoints. Pass ignores it: it is not for a Service.
const (
	Balance Verdict = iota
	Reject
	Drop
	Pass
)

func (v Verdict) String() string { return [...]string{"balance", "reject", "drop", "pass"}[v] }

// Node holds the settings for the node as a whole.
type Node struct {
	// NodePortAddrs are the addresses on which node ports are served, sorted.
	NodePortAddrs []netip.Addr
	// LocalTraffic detects connections from local pods.
	LocalTraffic LocalTraffic
	// Addrs are the addresses of this machine, sorted. Connections from them are the node's own.
	Addrs []netip.Addr
	// ServiceCIDRs are the ranges of cluster IPs. Connections to an address in them that no Service has are dropped;
	// connections to an undefined port of a cluster IP are rejected.
	ServiceCIDRs []netip.Prefix
	// Forwarded lists the families in which the proxy itself listens on localhost, on TCP node ports.
	Forwarded []cluster.Family
	// ResetTCP rejects TCP by a reset instead of an ICMP error, unless a rule has translated the packet: the kernel translates the ICMP error
	// back for its client, and not the reset. Both refuse a new connection; only a reset ends one whose connection
	// tracking entry was deleted because its endpoint is gone.
	ResetTCP bool
	// Devices are those between which connections may take the fast path. The kernel removes one that disappears.
	Devices []cluster.Device
}

// Has reports whether an address belongs to this machine.
func (n *Node) Has(addr netip.Addr) bool {
	_, own := slices.BinarySearchFunc(n.Addrs, addr, netip.Addr.Compare)
	return own || addr.IsLoopback()
}

func (n *Node) equal(o *Node) bool {
	return n.ResetTCP == o.ResetTCP && slices.Equal(n.Devices, o.Devices) && slices.Equal(n.NodePortAddrs, o.NodePortAddrs) && slices.Equal(n.Forwarded, o.Forwarded) && n.LocalTraffic.equal(o.LocalTraffic) &&
		slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.ServiceCIDRs, o.ServiceCIDRs)
}
