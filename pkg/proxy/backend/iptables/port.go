package iptables

import (
	"net/netip"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// port is one port of a Service in one family, with its frontends, sorted. It is immutable.
type port struct {
	key    portKey
	routes []*plan.Route
	// chains are the rendered chains.
	chains []chainName
}

// fence returns the bounds of a port that is served. Where a plan includes a change in part, the first frontend decides for all.
func (p *port) fence() (f fence, bounded bool) {
	first := p.routes[0]
	if first.Fence == nil || !slices.ContainsFunc(p.routes, served) {
		return fence{}, false
	}
	return fence{first.Service, *first.Fence}, true
}

// namedChain is a chain with its name.
type namedChain struct {
	name chainName
	*chain
}

// served reports whether the nat table handles connections to a frontend.
func served(r *plan.Route) bool { return r.Verdict == plan.Balance || r.ShortCut != nil }

// entryChain returns the chain that connections to a frontend are sent to.
func entryChain(r *plan.Route) string {
	prefix := prefixExternal
	switch {
	case r.Kind == plan.ClusterIP && r.Policy == cluster.PolicyLocal:
		prefix = prefixLocal
	case r.Kind == plan.ClusterIP:
		prefix = prefixCluster
	case len(r.SourceRanges) > 0:
		prefix = prefixFirewall
	}
	return keyOf(r).chain(prefix)
}

// portWriter renders the chains of one port.
type portWriter struct {
	*writer
	key portKey
	// hairpins are the addresses that may reach themselves through the Service.
	hairpins []netip.Addr
	affinity time.Duration
	// fence is the chain that checks the bounds of the Service's connections; "" is none.
	fence string
}

// portChains renders the chains of a port. All its frontends have the same endpoints under the same policy, and all
// external ones are handled alike, so each chain is rendered for the first frontend that needs it. Where a plan includes a change in
// part, that one decides for all.
func (w *writer) portChains(p *port, hairpins []netip.Addr) (chains []namedChain) {
	pw := &portWriter{writer: w, key: p.key, hairpins: hairpins, affinity: p.routes[0].Affinity.For()}
	if f, bounded := p.fence(); bounded {
		pw.fence = f.chain()
	}
	var byPolicy [2]*poolChain
	use := func(policy cluster.Policy, pool *plan.Pool) {
		if pool != nil && len(pool.Endpoints) > 0 && byPolicy[policy] == nil {
			byPolicy[policy] = &poolChain{pool: pool}
		}
	}
	var external, restricted *plan.Route
	for _, r := range p.routes {
		if !served(r) {
			continue
		}
		use(r.Policy, r.Pool)
		use(cluster.PolicyCluster, r.ShortCut)
		if r.Kind == plan.ClusterIP {
			byPolicy[r.Policy].clusterIPs = append(byPolicy[r.Policy].clusterIPs, r)
			continue
		}
		if external == nil {
			external = r
		}
		if len(r.SourceRanges) > 0 && restricted == nil {
			restricted = r
		}
	}
	add := func(name string, b body) {
		chains = append(chains, namedChain{chainName{tableNAT, name}, &chain{body: b, unit: p.key, rank: rankPort}})
	}
	var own []netip.AddrPort
	for policy, prefix := range [...]string{cluster.PolicyCluster: prefixCluster, cluster.PolicyLocal: prefixLocal} {
		if c := byPolicy[policy]; c != nil {
			add(p.key.chain(prefix), body{pw.poolSize(c), func(to []ipt.Rule) []ipt.Rule { return pw.poolChain(to, c) }})
			own = append(own, slices.DeleteFunc(slices.Clone(c.pool.Endpoints), func(e netip.AddrPort) bool { return !pw.hairpin(e) })...)
		}
	}
	slices.SortFunc(own, netip.AddrPort.Compare)
	for _, endpoint := range slices.Compact(own) {
		add(p.key.endpoint(endpoint), body{2, func(to []ipt.Rule) []ipt.Rule { return pw.endpointChain(to, endpoint) }})
	}
	if external != nil {
		add(p.key.chain(prefixExternal), body{len(pw.externalChain(nil, external)), func(to []ipt.Rule) []ipt.Rule { return pw.externalChain(to, external) }})
	}
	if restricted != nil {
		add(p.key.chain(prefixFirewall), body{len(restricted.SourceRanges), func(to []ipt.Rule) []ipt.Rule { return pw.firewallChain(to, restricted) }})
	}
	return chains
}

// poolChain describes the chain with the endpoints of one policy.
type poolChain struct {
	pool *plan.Pool
	// clusterIPs are the routes whose packets enter it directly.
	clusterIPs []*plan.Route
}

// hairpin reports whether an endpoint may reach itself through the Service. Only such endpoints have a chain of their
// own: half as many chains load twice as fast, and the legacy variant copies every rule with every change.
func (w *portWriter) hairpin(endpoint netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(w.hairpins, endpoint.Addr(), netip.Addr.Compare)
	return found
}

// poolSize returns the number of rules of the chain that balances over a pool.
func (w *portWriter) poolSize(c *poolChain) (n int) {
	for _, r := range c.clusterIPs {
		if w.isMasqueraded(r) {
			n++
		}
	}
	if w.affinity > 0 {
		n += len(c.pool.Endpoints)
	}
	if w.fence != "" {
		n++
	}
	return n + len(c.pool.Endpoints)
}

// poolChain appends the rules of the chain that balances over a pool.
func (w *portWriter) poolChain(to []ipt.Rule, c *poolChain) []ipt.Rule {
	is, empty := protocol(w.key.protocol), len(to)
	if w.fence != "" { // before any rule marks the packet: KUBE-FORWARD accepts marked ones
		to = append(to, rule(ipt.Jump(w.fence), comment(w.key.name+" limits")))
	}
	for _, r := range c.clusterIPs {
		if w.isMasqueraded(r) {
			port := r.Frontend.Port
			to = append(to, rule(ipt.Jump(chainMark), append(w.masqueraded(r), is, comment(w.key.name+" "+r.Kind.String()), dport(w.key.protocol, port, port))...))
		}
	}
	var name ipt.Match // every chain contains the Service's name once
	if len(to) == empty {
		name = comment(w.key.name)
	}
	if w.affinity > 0 {
		for _, endpoint := range c.pool.Endpoints {
			to = append(to, rule(w.send(endpoint), is, name, w.recent(endpoint, w.affinity)))
			name = nil
		}
	}
	left := 0
	for i := range c.pool.Endpoints {
		left += c.pool.Weight(i)
	}
	for i, endpoint := range c.pool.Endpoints {
		drawn, enlisted, weight := ipt.Match(nil), ipt.Match(nil), c.pool.Weight(i)
		switch {
		case left == weight: // the last one
		case c.pool.By() == cluster.RoundRobin && weight == 1:
			drawn = ipt.Every(left)
		default:
			drawn = chance(weight, left)
		}
		left -= weight
		if !w.hairpin(endpoint) { // whose own chain does that
			enlisted = w.recent(endpoint, 0)
		}
		to = append(to, rule(w.send(endpoint), is, name, drawn, enlisted))
		name = nil
	}
	return to
}

// recent matches clients in the list of an endpoint, if there is session affinity.
func (w *portWriter) recent(endpoint netip.AddrPort, within time.Duration) ipt.Match {
	if w.affinity == 0 {
		return nil
	}
	return ipt.Recent{List: w.key.endpoint(endpoint), Within: within, Whole: w.fullMask}
}

// send sends a connection to an endpoint, through its chain if it has one.
func (w *portWriter) send(endpoint netip.AddrPort) ipt.Target {
	if w.hairpin(endpoint) {
		return ipt.Jump(w.key.endpoint(endpoint))
	}
	return ipt.DNAT(endpoint)
}

// endpointChain appends the rules of the chain of an endpoint that may reach itself. Its own connections are marked, so that
// KUBE-FORWARD accepts them and KUBE-POSTROUTING masquerades them: otherwise its replies would not pass the node.
func (w *portWriter) endpointChain(to []ipt.Rule, endpoint netip.AddrPort) []ipt.Rule {
	return append(to,
		rule(ipt.Jump(chainMark), source(host(endpoint.Addr())), comment(w.key.name)),
		rule(ipt.DNAT(endpoint), protocol(w.key.protocol), w.recent(endpoint, 0)))
}

// isMasqueraded reports whether any connections to a cluster IP are masqueraded.
func (w *writer) isMasqueraded(r *plan.Route) bool {
	return r.Masquerade == plan.MasqueradeAll || r.Masquerade == plan.MasqueradeOffCluster && w.discerns(false)
}

// masqueraded matches the connections to a cluster IP that are masqueraded, if any are.
func (w *writer) masqueraded(r *plan.Route) []ipt.Match {
	if r.Masquerade == plan.MasqueradeAll {
		return []ipt.Match{destination(host(r.Frontend.Addr))}
	}
	return w.localTraffic(false, r.Frontend.Addr)
}

// externalChain appends the rules of the chain of connections to any address but the cluster IP.
func (w *portWriter) externalChain(to []ipt.Rule, r *plan.Route) []ipt.Rule {
	say := func(what string) ipt.Match { return comment(w.key.name + what) }
	everywhere, here := ipt.Jump(w.key.chain(prefixCluster)), ipt.Jump(w.key.chain(prefixLocal))
	if r.ShortCut == nil {
		jump := everywhere
		if r.Policy == cluster.PolicyLocal {
			jump = here
		}
		if r.Masquerade == plan.MasqueradeAll {
			return append(to, rule(ipt.Jump(chainMark), say(" from outside")), rule(jump))
		}
		return append(to, rule(jump, say(" from outside")))
	}
	// The node's own connections may go to any endpoint, but the replies must return through the node.
	own := ipt.LocalSource
	to = append(to, rule(ipt.Jump(chainMark), say(" from this node"), own), rule(everywhere, own))
	if w.discerns(true) {
		to = append(to, rule(everywhere, append(w.localTraffic(true, netip.Addr{}), say(" from local pods"))...))
	}
	if len(r.Pool.Endpoints) > 0 {
		to = append(to, rule(here))
	}
	return to
}

// firewallChain appends the rules of the chain that checks source ranges. Connections that fall through are not translated, and are
// dropped in the filter table.
func (w *portWriter) firewallChain(to []ipt.Rule, r *plan.Route) []ipt.Rule {
	for _, from := range r.SourceRanges {
		to = append(to, rule(ipt.Jump(w.key.chain(prefixExternal)), source(from), comment(w.key.name+" let in")))
	}
	return to
}

// frontendBodies returns the rules of one frontend, by place.
func (w *writer) frontendBodies(r *plan.Route) (bodies [places]body) {
	f := r.Frontend
	if served(r) {
		p := natOthers
		switch {
		case f.IsNodePort():
			p = natNodePorts
		case r.Kind == plan.ClusterIP && w.inServiceCIDR(f.Addr):
			p = natClusterIPs
		}
		bodies[p] = body{1, func(to []ipt.Rule) []ipt.Rule { return append(to, entryRule(r)) }}
	}
	refuse := w.refusal(r.Verdict, f.Protocol)
	if w.bounded(r) {
		refuse = ipt.Drop
	}
	switch n := len(r.SourceRanges); {
	case n > 0:
		if r.Verdict != plan.Reject && !w.bounded(r) {
			n = 0
		}
		bodies[filterRestricted] = body{n + 1, func(to []ipt.Rule) []ipt.Rule { return w.restriction(to, r, refuse) }}
	case refuse != nil:
		p, on := filterOthers, []onNode{{address: toAddr(f)}}
		switch {
		case f.IsNodePort():
			p, on = filterNodePorts, w.onNode()
		case r.Kind == plan.ClusterIP:
			p = filterClusterIPs
		}
		bodies[p] = body{len(on), func(to []ipt.Rule) []ipt.Rule { return refusals(to, r, refuse, on) }}
	}
	return bodies
}

// bounded reports whether the filter table drops new connections to a frontend, which are those that exceed bounds. It cannot if an endpoint
// is the frontend itself: then all of its connections have this destination.
func (w *writer) bounded(r *plan.Route) bool {
	f := r.Frontend
	return r.Fence != nil && r.Verdict == plan.Balance && !slices.ContainsFunc(r.Pool.Endpoints, func(e netip.AddrPort) bool {
		return e.Port() == f.Port && (e.Addr() == f.Addr || f.IsNodePort() && w.node.Has(e.Addr()))
	})
}

// toAddr matches the address of a frontend; every packet, if it is a node port.
func toAddr(f plan.Frontend) ipt.Match {
	if f.IsNodePort() {
		return nil
	}
	return destination(host(f.Addr))
}

// entryRule sends connections to a frontend to its chain.
func entryRule(r *plan.Route) ipt.Rule {
	tell := [...]string{plan.ClusterIP: " cluster IP", plan.ExternalIP: " external IP", plan.LoadBalancerIP: " loadbalancer IP", plan.NodePort: ""}
	f := r.Frontend
	return rule(ipt.Jump(entryChain(r)), toAddr(f), protocol(f.Protocol), comment(r.Name+tell[r.Kind]), dport(f.Protocol, f.Port, f.Port))
}

// restriction appends the rules for connections to a frontend with source ranges that were not translated: those from allowed sources
// are refused if there is no endpoint, or if they exceed the Service's bounds, all others are dropped.
func (w *writer) restriction(rules []ipt.Rule, r *plan.Route, refuse ipt.Target) []ipt.Rule {
	f := r.Frontend
	is, port := protocol(f.Protocol), dport(f.Protocol, f.Port, f.Port)
	if r.Verdict == plan.Reject || w.bounded(r) {
		for _, from := range r.SourceRanges {
			rules = append(rules, rule(refuse, source(from), toAddr(f), is, port, untranslated(r)))
		}
	}
	return append(rules, rule(ipt.Drop, destination(host(f.Addr)), is, comment(r.Name+" from elsewhere"), port))
}

// untranslated leaves connections of other Services alone: the address of a frontend with bounds may be their endpoint.
func untranslated(r *plan.Route) ipt.Match {
	if r.Verdict != plan.Balance {
		return nil
	}
	return ipt.Not(ipt.Translated)
}

// refusals appends the rules that refuse connections to a frontend on some addresses.
func refusals(rules []ipt.Rule, r *plan.Route, refuse ipt.Target, on []onNode) []ipt.Rule {
	f, tell := r.Frontend, " has no endpoints"
	switch {
	case r.Verdict == plan.Balance:
		tell = " exceeds its limits"
	case r.Reason() == plan.NoLocalEndpoints:
		tell = " has no local endpoints"
	}
	for _, on := range on {
		rules = append(rules, rule(refuse, on.address, protocol(f.Protocol), comment(r.Name+tell), on.local, dport(f.Protocol, f.Port, f.Port), untranslated(r)))
	}
	return rules
}
