package plan

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Packet is the first packet of a connection, before any translation.
type Packet struct {
	Source netip.Addr
	// Interface is the name of the input interface; empty for packets that the node itself sends.
	Interface string
	To        netip.AddrPort
	Protocol  cluster.Protocol
}

// Path is where a connection goes and why.
type Path struct {
	Verdict Verdict
	// Route is the matching route; nil if there is none.
	Route *Route
	// Pool holds the possible endpoints if Verdict is Balance.
	Pool *Pool
	// Masqueraded reports whether the endpoint sees the node as the source.
	Masqueraded bool
	// Hairpin is the packet's source if that may also be the chosen endpoint: in that case, too, the endpoint sees
	// the node as the source. Invalid otherwise.
	Hairpin netip.Addr
	// Why explains the verdict in words.
	Why string
}

// Explain traces a packet through the plan.
func (p *Plan) Explain(packet Packet) Path {
	route := p.RouteTo(packet.To, packet.Protocol)
	if route == nil {
		return p.unrouted(packet)
	}
	path := Path{Verdict: route.Verdict, Route: route, Pool: route.Pool, Why: route.Reason().String()}
	if len(route.SourceRanges) > 0 && !within(route.SourceRanges, packet.Source) {
		path.Verdict, path.Why = Drop, "the source is in none of the Service's source ranges"
		return path
	}
	own := packet.Interface == "" || slices.Contains(p.Node.Addrs, packet.Source)
	local := p.Node.LocalTraffic.Is(packet.Source, packet.Interface)
	if route.ShortCut != nil && (own || local) {
		path.Verdict, path.Pool = Balance, route.ShortCut
		path.Masqueraded = own
		path.Why = "local traffic needs no local endpoint: " + route.ShortCut.Reason.String()
	} else {
		path.Masqueraded = path.Verdict == Balance && p.masquerades(route, local)
	}
	if path.Verdict == Balance && p.hairpin(route, packet.Source) {
		path.Hairpin = packet.Source
	}
	return path
}

// unrouted returns the path of a packet without a matching frontend. Packets to the node itself pass.
func (p *Plan) unrouted(packet Packet) Path {
	to := packet.To.Addr()
	if route := p.onLocalhost(packet); route != nil && route.RejectOnLocalhost {
		return Path{Verdict: Reject, Route: route, Why: "the node port is not served on localhost"}
	}
	if _, known := p.ClusterIPs.Get(to); known {
		return Path{Verdict: Reject, Why: "the cluster IP has no such port"}
	}
	if within(p.Node.ServiceCIDRs, to) {
		return Path{Verdict: Drop, Why: "no Service has this cluster IP"}
	}
	return Path{Verdict: Pass, Why: "it is not for a Service"}
}

// onLocalhost returns the node port route for a packet to a loopback address; nil if there is none.
func (p *Plan) onLocalhost(packet Packet) *Route {
	if !packet.To.Addr().IsLoopback() {
		return nil
	}
	family := cluster.FamilyOf(packet.To.Addr())
	route, _ := p.Frontends.Get(Frontend{Addr: anyAddr(family), Protocol: packet.Protocol, Port: packet.To.Port()})
	return route
}

func (p *Plan) masquerades(route *Route, local bool) bool {
	switch route.Masquerade {
	case MasqueradeAll:
		return true
	case MasqueradeOffCluster:
		return !local && p.Node.LocalTraffic.Detects(route.Frontend.Family())
	default:
		return false
	}
}

// hairpin reports whether a connection from an address may be sent back to it through a route.
func (p *Plan) hairpin(route *Route, source netip.Addr) bool {
	service, ok := p.Services.Get(route.Service)
	return ok && slices.Contains(service.HairpinAddrs, source)
}

func within(ranges []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) })
}
