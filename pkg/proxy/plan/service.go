package plan

import (
	"net/netip"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// decide computes the decisions about one Service. A route that is unchanged since before keeps its pointer, so that
// later stages find changes by comparing pointers.
func decide(s *cluster.Service, node *cluster.Node, opts *Options, before *Service) *Service {
	d := newDecision(s, node, opts, before)
	for len(d.ports) > 0 {
		d.next()
	}
	return d.finish()
}

// decision is the work on one Service.
type decision struct {
	service *cluster.Service
	node    *cluster.Node
	opts    *Options
	before  *Service
	out     *Service
	rare    rareLists
	// algorithm is how connections are balanced. fits reports that the slots of tables and weights are not too many.
	algorithm cluster.Algorithm
	fits      bool
	fence     *cluster.Fence
	// ports are those that are left to decide about.
	ports []cluster.ServicePort
}

func newDecision(s *cluster.Service, node *cluster.Node, opts *Options, before *Service) *decision {
	d := &decision{service: s, node: node, opts: opts, before: before,
		out: &Service{Name: s.Name, UID: s.UID, Created: s.Created, KeepsTerminating: opts.KeepTerminatingUDPFlows && s.PreserveUDP}}
	d.out.ClusterIPs = d.clusterIPs()
	d.rare.unbalanced = d.unbalanced()
	d.fence, d.rare.unfenced = opts.Fences.of(s)
	d.ports = d.servedPorts()
	d.out.WithheldPorts = uint32(len(s.Ports) - len(d.ports))
	return d
}

// after returns a copy that has decided about more ports, until these have about so many endpoints. It leaves d as it is.
func (d *decision) after(limit int) *decision {
	endpoints := 1
	for _, slice := range d.service.Slices {
		endpoints += 1 + len(slice.Endpoints)
	}
	next, out := *d, *d.out
	out.Routes = slices.Clip(out.Routes)
	next.out, next.rare = &out, d.rare
	next.rare.hairpinAddrs, next.rare.serving = slices.Clip(d.rare.hairpinAddrs), slices.Clip(d.rare.serving)
	next.rare.localPods = slices.Clip(d.rare.localPods)
	for ; limit > 0 && len(next.ports) > 0; limit -= endpoints {
		next.next()
	}
	next.rare.hairpinAddrs, next.rare.localPods = sortedSet(slices.Clone(next.rare.hairpinAddrs)), sortedSet(slices.Clone(next.rare.localPods))
	return &next
}

// next decides about one port.
func (d *decision) next() {
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if d.opts.Serves(d.node, family) {
			d.port(&d.ports[0], family)
		}
	}
	d.ports = d.ports[1:]
}

// finish returns the decisions, when no port is left. It modifies d.
func (d *decision) finish() *Service {
	slices.SortStableFunc(d.out.Routes, func(a, b *Route) int { return a.Frontend.Compare(b.Frontend) })
	// A Service may have the same load balancer IP and external IP: the first kind counts.
	d.out.Routes = slices.CompactFunc(d.out.Routes, func(a, b *Route) bool { return a.Frontend == b.Frontend })
	if len(d.rare.serving)+len(d.rare.hairpinAddrs)+len(d.rare.unbalanced)+len(d.rare.unfenced) > 0 {
		rare := d.rare
		slices.SortStableFunc(rare.serving, Serving.compare)
		rare.hairpinAddrs, rare.localPods = sortedSet(rare.hairpinAddrs), sortedSet(rare.localPods)
		d.out.rare = &rare
	}
	d.out.HealthCheck = d.healthCheck()
	if !d.opts.ServeExternalIPs {
		d.out.WithheldExternalIPs = uint32(len(d.service.ExternalIPs()))
	}
	return d.out
}

// clusterIPs returns the cluster IPs that are served: nearly always all of them, in the memory of the snapshot.
func (d *decision) clusterIPs() []netip.Addr {
	not := func(a netip.Addr) bool { return !usable(a) || !d.opts.Serves(d.node, cluster.FamilyOf(a)) }
	if !slices.ContainsFunc(d.service.ClusterIPs, not) {
		return d.service.ClusterIPs
	}
	return slices.DeleteFunc(slices.Clone(d.service.ClusterIPs), not)
}

// address is an address and port of a Service, with its kind.
type address struct {
	kind Kind
	addr netip.Addr
	port uint16
}

// addresses returns the addresses of one family on which a port is served, in the order of kinds. There are none if
// the Service has no cluster IP of the family: some clouds give a single-stack Service load balancer IPs of both
// families, and the node must not capture traffic that it cannot serve.
func (d *decision) addresses(port *cluster.ServicePort, family cluster.Family) []address {
	if !d.service.InFamily(family) {
		return nil
	}
	var all []address
	add := func(kind Kind, port uint16, addrs ...netip.Addr) {
		for _, addr := range addrs {
			if usable(addr) && cluster.FamilyOf(addr) == family {
				all = append(all, address{kind, addr, port})
			}
		}
	}
	add(ClusterIP, port.Port, d.service.ClusterIPs...)
	add(LoadBalancerIP, port.Port, d.service.LoadBalancerIPs()...)
	if d.opts.ServeExternalIPs {
		add(ExternalIP, port.Port, d.service.ExternalIPs()...)
	}
	if port.NodePort != 0 {
		all = append(all, address{NodePort, family.Unspecified(), port.NodePort})
	}
	return all
}

// usable reports whether a Service may have an address. An unspecified one would match all others (CVE-2021-25736), and a
// loopback or multicast address belongs to each machine itself.
func usable(addr netip.Addr) bool {
	return addr.IsValid() && !addr.IsUnspecified() && !addr.IsLoopback() && !addr.IsMulticast()
}

// port computes all routes of one port in one family.
func (d *decision) port(port *cluster.ServicePort, family cluster.Family) {
	addresses := d.addresses(port, family)
	if len(addresses) == 0 {
		return
	}
	all := d.opts.candidates(d.service, port, family)
	everywhere := clusterPool(all, d.node.Zone)
	d.spread(everywhere)
	sticky := d.service.Affinity > 0
	var here *Pool // few Services need it
	if sticky || d.service.InternalPolicy == cluster.PolicyLocal || d.service.ExternalPolicy == cluster.PolicyLocal {
		here = localPool(all)
		d.spread(here)
	}
	var affinity *Affinity
	if sticky {
		affinity = &Affinity{Timeout: d.service.Affinity, Everywhere: everywhere, Here: here, Clients: clients(len(d.service.Ports))}
	}
	name, ranges := PortName(d.service.Name, port.Name), d.sourceRanges(family) // which all routes share: there may be thousands of both
	for _, a := range addresses {
		route := &Route{
			Frontend: Frontend{Addr: a.addr, Protocol: port.Protocol, Port: a.port},
			Kind:     a.kind,
			Service:  d.service.Name, Name: name,
			Affinity: affinity, Fence: d.fence,
			FastPath: d.opts.FastPath.On && ptr.Deref(d.service.FastPath, d.opts.FastPath.All) && port.Protocol != cluster.SCTP,
		}
		if a.kind == ClusterIP {
			d.internal(route, everywhere, here)
		} else {
			d.external(route, everywhere, here, ranges)
		}
		d.out.Routes = append(d.out.Routes, d.known(route))
	}
	if port.Protocol == cluster.UDP {
		d.rare.serving = append(d.rare.serving, d.serving(port.Name, family, all, everywhere, here))
	}
	for i := range all {
		if all[i].rank() > unusable && d.mayBeHere(all[i].Endpoint) {
			d.rare.hairpinAddrs = append(d.rare.hairpinAddrs, all[i].addr.Addr())
			if all[i].Conditions&cluster.Local != 0 {
				d.rare.localPods = append(d.rare.localPods, all[i].addr.Addr())
			}
		}
	}
}

// mayBeHere reports whether an endpoint is on this node, or may be: its slice names no node, or its address is one of this node's pods,
// whatever node the slice names.
func (d *decision) mayBeHere(e *cluster.Endpoint) bool {
	return e.Conditions&(cluster.Local|cluster.NoNodeName) != 0 || within(d.node.PodCIDRs, e.Addr)
}

// clients returns how many clients with session affinity each pool of a Service may have, by its number of ports. There are few steps:
// clients may be forgotten when a Service gets to another one.
func clients(ports int) int {
	switch {
	case ports <= 10:
		return 20_000
	case ports <= 100:
		return 2000
	default:
		return 200
	}
}

// internal completes the route of a cluster IP.
func (d *decision) internal(route *Route, everywhere, here *Pool) {
	route.Policy, route.Pool = d.service.InternalPolicy, everywhere
	if route.Policy == cluster.PolicyLocal {
		route.Pool = here
	}
	route.Verdict = verdict(route.Pool)
	route.Masquerade = d.opts.masqueradeInternal(d.node)
}

// masqueradeInternal selects the connections to cluster IPs that get the node's source address.
func (o *Options) masqueradeInternal(node *cluster.Node) Masquerade {
	if o.MasqueradeAll || o.podCIDRsUnknown(node) {
		return MasqueradeAll
	}
	return MasqueradeOffCluster
}

// external completes the route of any other address. ranges are those of load balancer IPs.
func (d *decision) external(route *Route, everywhere, here *Pool, ranges []netip.Prefix) {
	route.Policy, route.Pool = d.service.ExternalPolicy, everywhere
	route.Masquerade = MasqueradeAll
	if route.Policy == cluster.PolicyLocal {
		route.Pool, route.Masquerade = here, MasqueradeNone
		if len(everywhere.Endpoints) > 0 {
			route.ShortCut = everywhere
		}
	}
	route.Verdict = verdict(route.Pool)
	if route.Kind == LoadBalancerIP {
		route.SourceRanges = ranges
	}
	route.RejectOnLocalhost = route.Kind == NodePort && d.opts.Localhost.rejects(route.Frontend)
}

// sourceRanges returns the sources that may use the Service's load balancer IPs of one family, as disjoint ranges. If they
// include this node, they also include the load balancer IPs: the node uses one as its source address if an interface has it.
func (d *decision) sourceRanges(family cluster.Family) []netip.Prefix {
	var ranges []netip.Prefix
	own := false
	for _, cidr := range d.service.SourceRanges() {
		if cluster.FamilyOf(cidr.Addr()) == family {
			ranges = append(ranges, cidr)
			own = own || slices.ContainsFunc(d.node.Addresses, cidr.Contains)
		}
	}
	if own {
		for _, vip := range d.service.LoadBalancerIPs() {
			if cluster.FamilyOf(vip) == family {
				ranges = append(ranges, netip.PrefixFrom(vip, vip.BitLen()))
			}
		}
	}
	return disjoint(ranges)
}

// known returns the equal route of the decision before, if there is one.
func (d *decision) known(route *Route) *Route {
	if d.before != nil {
		if old := find(d.before.Routes, route.Frontend); old != nil && old.equal(route) {
			return old
		}
	}
	return route
}

// find returns the route of a frontend in sorted routes; nil if there is none.
func find(routes []*Route, frontend Frontend) *Route {
	at, found := slices.BinarySearchFunc(routes, frontend, func(r *Route, f Frontend) int { return r.Frontend.Compare(f) })
	if !found {
		return nil
	}
	return routes[at]
}

// verdict returns what happens to connections that are sent to a pool.
func verdict(pool *Pool) Verdict {
	switch {
	case len(pool.Endpoints) > 0:
		return Balance
	case pool.Reason == NoLocalEndpoints:
		return Drop
	default:
		return Reject
	}
}

func sortedSet(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
