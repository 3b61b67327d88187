package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	// Loop reports that the packet is refused because it, or the answer to it, would come back to the node.
	Loop bool
	// Why explains the verdict in words.
	Why string
	// Steps are the decisions that led to the verdict, in their order.
	Steps []Step
}

// Step is one decision about a packet.
type Step struct {
	// Subject is what was decided: address, source, source ranges, policy, endpoints, affinity or masquerade.
	Subject string
	// Text is the decision and its reason.
	Text string
}

// decided adds a step.
func (path *Path) decided(subject, format string, args ...any) {
	path.Steps = append(path.Steps, Step{subject, fmt.Sprintf(format, args...)})
}

// ended adds the last step, which is also the reason of the verdict.
func (path *Path) ended(verdict Verdict, subject, why string) Path {
	path.Verdict, path.Why = verdict, why
	path.decided(subject, "%s: %s", verdict, why)
	return *path
}

// Passed returns the path of a packet that a backend's rules leave alone, although the plan says something else. It has the given
// steps before that.
func Passed(why string, before ...Step) Path {
	return (&Path{Steps: slices.Clone(before)}).ended(Pass, "address", why)
}

// MasqueradedTo reports whether an endpoint of the path sees the node as the source.
func (path *Path) MasqueradedTo(endpoint netip.AddrPort) bool {
	return path.Masqueraded || endpoint.Addr() == path.Hairpin
}

// Explain traces a packet through the plan.
func (p *Plan) Explain(packet Packet) Path {
	if packet.Interface != "" {
		if packet.To.Addr().IsLoopback() {
			return (&Path{}).ended(Drop, "address", "a loopback address is for packets of the node itself")
		}
		if p.isClusterIP(packet.Source) {
			return (&Path{Loop: true}).ended(Drop, "source", "the source is a cluster IP, which no host has: the packet is forged")
		}
	}
	route := p.RouteTo(packet.To, packet.Protocol)
	if route == nil {
		return p.unrouted(packet)
	}
	path := &Path{Route: route}
	p.matched(path, packet)
	own := packet.Interface == "" || slices.Contains(p.Node.Addrs, packet.Source)
	local := p.Node.LocalTraffic.Is(packet.Source, packet.Interface)
	path.decided("source", "%s", p.origin(packet, own, local))
	if len(route.SourceRanges) > 0 {
		if !route.admits(packet.Source) {
			return path.ended(Drop, "source ranges", "the source is in none of the Service's source ranges")
		}
		path.decided("source ranges", "%s is in %v", packet.Source, route.SourceRanges)
	}
	if route.ShortCut != nil && (own || local) {
		path.Pool = route.ShortCut
		path.Why = "local traffic needs no local endpoint: " + route.ShortCut.Reason.String()
		path.decided("policy", "%s policy %s: %s", route.direction(), route.Policy, path.Why)
	} else {
		path.Pool, path.Verdict, path.Why = route.Pool, route.Verdict, route.Reason().String()
		path.decided("policy", "%s policy %s: %s", route.direction(), route.Policy, path.Why)
	}
	if path.Verdict != Balance {
		path.decided("endpoints", "%s: %s", path.Verdict, path.Why)
		return *path
	}
	if !slices.ContainsFunc(path.Pool.Endpoints, func(e netip.AddrPort) bool { return !p.isClusterIP(e.Addr()) }) {
		path.Loop = true
		return path.ended(Reject, "endpoints", "the endpoint is a cluster IP, and packets to it would come back to the node")
	}
	if route.Fence != nil {
		path.decided("limits", "of connections to the Service through this node: %s; a first packet above that is dropped", route.Fence)
	}
	path.decided("endpoints", "%s", path.Pool.oneOf()+path.Pool.how())
	if route.Affinity != nil {
		path.decided("affinity", "a client that has connected within %s gets the same endpoint again", route.Affinity.Timeout)
	}
	if route.FastPath && packet.Interface != "" {
		path.decided("fast path", "after %d packets, unless the endpoint is this node itself: later ones meet no rules of any program, and trace does not show them", FastPathAfter)
	}
	p.source(path, packet, own, local)
	return *path
}

// isClusterIP reports whether an address is that of a Service: backends refuse connections that they have sent to such an endpoint.
func (p *Plan) isClusterIP(addr netip.Addr) bool {
	_, is := p.ClusterIPs.Get(addr)
	return is
}

// maxNamed is the number of endpoints that a step names.
const maxNamed = 8

// oneOf names the endpoints, the first few of many.
func (p *Pool) oneOf() string {
	var names []string
	for _, endpoint := range p.Endpoints[:min(len(p.Endpoints), maxNamed)] {
		names = append(names, endpoint.String())
	}
	text := strings.Join(names, ", ")
	if more := len(p.Endpoints) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if len(p.Endpoints) > 1 {
		text = "one of " + text
	}
	return text
}

// how describes how one of several endpoints is picked; "" if at random, all with the same probability.
func (p *Pool) how() string {
	if p.Spread == nil {
		return ""
	}
	text := ", " + p.Picking()
	if p.Spread.Weights != nil {
		text += fmt.Sprintf(" (weights %s)", firstOf(strings.Fields(strings.Trim(fmt.Sprint(p.Spread.Weights), "[]"))))
	}
	return text
}

// Picking describes how one of several endpoints is picked.
func (p *Pool) Picking() string {
	text := [...]string{
		cluster.Random: "at random", cluster.RoundRobin: "one after the other",
		cluster.SourceHash: "always the same for a source address", cluster.Maglev: "always the same for a source address and port, on every node",
	}[p.By()]
	switch {
	case p.Spread == nil:
		return "with equal probability"
	case p.Spread.Weights != nil:
		return text + ", in proportion to their weights"
	}
	return text
}

// matched explains why the packet meets the path's route.
func (p *Plan) matched(path *Path, packet Packet) {
	route := path.Route
	if route.Frontend.IsNodePort() {
		path.decided("address", "%s is one of the node port addresses of this node; port %d/%s is the %s of %s",
			packet.To.Addr(), packet.To.Port(), packet.Protocol, route.Kind, route.Name)
	} else {
		path.decided("address", "%s is %s", route.Frontend, route.role())
	}
	if claims, contested := p.Contested.Get(route.Frontend); contested {
		for lost := range claims.Lost() {
			path.decided("address", "%s claims it too: it is %s", lost.Name, p.Lost(lost))
		}
	}
}

// origin describes where a packet comes from.
func (p *Plan) origin(packet Packet, own, local bool) string {
	switch traffic := p.Node.LocalTraffic; {
	case own && local:
		return fmt.Sprintf("%s is this node itself, which counts as local traffic", packet.Source)
	case own:
		return fmt.Sprintf("%s is this node itself", packet.Source)
	case local && traffic.Interface != "":
		return fmt.Sprintf("%s arrives on %s: local traffic", packet.Source, packet.Interface)
	case local:
		cidr, _ := traffic.CIDR(cluster.FamilyOf(packet.Source))
		return fmt.Sprintf("%s is in %s: local traffic", packet.Source, cidr)
	case !traffic.Detects(cluster.FamilyOf(packet.Source)):
		return fmt.Sprintf("%s: not this node; nothing detects local traffic", packet.Source)
	case traffic.Interface != "":
		return fmt.Sprintf("%s is neither this node nor local traffic: it does not arrive on %s", packet.Source, traffic.Interface)
	default:
		cidr, _ := traffic.CIDR(cluster.FamilyOf(packet.Source))
		text := fmt.Sprintf("%s is neither this node nor local traffic: it is not in %s", packet.Source, cidr)
		if p.outside(cidr) {
			text += ", and no endpoint on this node is: is clusterCIDRs right?"
		}
		return text
	}
}

// outside reports whether pods of this node are endpoints, but none of them is in the range by which local traffic is detected.
func (p *Plan) outside(cidr netip.Prefix) (outside bool) {
	for addr := range p.LocalPods.All() {
		if cidr.Contains(addr) {
			return false
		}
		outside = outside || addr.Is4() == cidr.Addr().Is4() && !slices.Contains(p.Node.Addrs, addr)
	}
	return outside
}

// direction names the traffic policy's field.
func (r *Route) direction() string {
	if r.Kind == ClusterIP {
		return "internal"
	}
	return "external"
}

// source decides whose address the endpoint sees as the source.
func (p *Plan) source(path *Path, packet Packet, own, local bool) {
	route := path.Route
	switch {
	case path.Pool == route.ShortCut && own:
		path.Masqueraded = true
		path.decided("masquerade", "yes: the reply must come back through this node")
	case path.Pool == route.ShortCut:
		path.decided("masquerade", "no: the source is a local pod")
	default:
		path.Masqueraded = p.masquerades(route, local)
		path.decided("masquerade", "%s", p.masqueradeText(route, local, path.Masqueraded))
	}
	if p.hairpin(route, packet.Source) {
		path.Hairpin = packet.Source
		if !path.Masqueraded {
			path.decided("masquerade", "yes if the endpoint is %s, the source itself: its replies must come back through this node", packet.Source)
		}
	}
}

// masqueradeText explains masquerades.
func (p *Plan) masqueradeText(route *Route, local, yes bool) string {
	switch {
	case route.Masquerade == MasqueradeNone:
		return "no: policy Local preserves the source"
	case route.Masquerade == MasqueradeAll && route.Kind != ClusterIP:
		return "yes: the endpoint may be on another node, and its reply must come back through this one"
	case route.Masquerade == MasqueradeAll:
		return "yes: all connections to cluster IPs are masqueraded"
	case yes:
		return "yes: the source is not local traffic, and the reply must come back through this node"
	case local:
		return "no: the source is local traffic"
	default:
		return "no: nothing detects local traffic"
	}
}

// unrouted returns the path of a packet without a matching frontend. Packets to the node itself pass.
func (p *Plan) unrouted(packet Packet) Path {
	to := packet.To.Addr()
	path := &Path{}
	switch route := p.onLocalhost(packet); {
	case route != nil && route.RejectOnLocalhost:
		path.Route = route
		return path.ended(Reject, "address", "the node port is not served on localhost")
	case route != nil && route.Verdict == Balance && p.forwards(packet):
		path.Route = route
		return path.ended(Pass, "address", "kube-proxy itself listens there, and forwards connections to an endpoint")
	}
	if p.isClusterIP(to) {
		return path.ended(Reject, "address", "the cluster IP has no such port")
	}
	if within(p.Node.ServiceCIDRs, to) {
		return path.ended(Drop, "address", "no Service has this cluster IP")
	}
	return path.ended(Pass, "address", cmp.Or(p.almost(packet), "it is not for a Service"))
}

// almost describes the Service that a packet would be for, had it another address or port; "" if there is none.
func (p *Plan) almost(packet Packet) string {
	to, family := packet.To.Addr(), cluster.FamilyOf(packet.To.Addr())
	if !p.options.Serves(p.snapshot.Node, family) {
		return family.String() + " is not served on this node"
	}
	if route, is := p.Frontends.Get(Frontend{Addr: family.Unspecified(), Protocol: packet.Protocol, Port: packet.To.Port()}); is {
		served := slices.DeleteFunc(slices.Clone(p.Node.NodePortAddrs), func(a netip.Addr) bool { return cluster.FamilyOf(a) != family })
		if to.IsLoopback() || slices.Contains(p.Node.Addrs, to) {
			return fmt.Sprintf("port %d/%s is the %s of %s, but %s is none of the node port addresses of this node (%s): see nodePortAddresses",
				packet.To.Port(), packet.Protocol, route.Kind, route.Name, to, cmp.Or(listed(served), "none"))
		}
	}
	var kind, name string
	var ports []string
	for frontend, route := range p.Frontends.All() {
		if frontend.Addr == to && !route.IsCanary() {
			kind, name, ports = route.Kind.oneOf(), route.Service.String(), append(ports, fmt.Sprintf("%d/%s", frontend.Port, frontend.Protocol))
		}
	}
	if name != "" {
		return fmt.Sprintf("%s is %s of %s, which has no port %d/%s there; it has %s", to, kind, name, packet.To.Port(), packet.Protocol, firstOf(ports))
	}
	for service := range p.snapshot.Services.Values() {
		if slices.Contains(service.Stray(), to) {
			return strayText(service, to)
		}
	}
	return ""
}

// forwards reports whether the proxy itself listens on an address of localhost for node ports.
func (p *Plan) forwards(packet Packet) bool {
	family := cluster.FamilyOf(packet.To.Addr())
	return packet.Protocol == cluster.TCP && packet.To.Addr() == localhost(family) && slices.Contains(p.Node.Forwarded, family)
}

// onLocalhost returns the node port route for a packet to a loopback address; nil if there is none.
func (p *Plan) onLocalhost(packet Packet) *Route {
	if !packet.To.Addr().IsLoopback() {
		return nil
	}
	family := cluster.FamilyOf(packet.To.Addr())
	route, _ := p.Frontends.Get(Frontend{Addr: family.Unspecified(), Protocol: packet.Protocol, Port: packet.To.Port()})
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
	return ok && slices.Contains(service.HairpinAddrs(), source)
}

func within(ranges []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) })
}
