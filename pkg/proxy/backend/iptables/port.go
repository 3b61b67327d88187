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
}

// portChains renders the chains of a port. All its frontends have the same endpoints under the same policy, and all
// external ones are handled alike, so each chain is rendered for the first frontend that needs it. Where a plan includes a change in
// part, that one decides for all.
func (w *writer) portChains(p *port, hairpins []netip.Addr) (chains []namedChain) {
	pw := &portWriter{writer: w, key: p.key, hairpins: hairpins, affinity: p.routes[0].Affinity.For()}
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
	add := func(name string, lines func() []line) {
		chains = append(chains, namedChain{chainName{tableNAT, name}, &chain{body: made(lines), unit: p.key, rank: rankPort}})
	}
	var own []netip.AddrPort
	for policy, prefix := range [...]string{cluster.PolicyCluster: prefixCluster, cluster.PolicyLocal: prefixLocal} {
		if c := byPolicy[policy]; c != nil {
			add(p.key.chain(prefix), func() []line { return pw.poolChain(c) })
			own = append(own, slices.DeleteFunc(slices.Clone(c.pool.Endpoints), func(e netip.AddrPort) bool { return !pw.hairpin(e) })...)
		}
	}
	slices.SortFunc(own, netip.AddrPort.Compare)
	for _, endpoint := range slices.Compact(own) {
		add(p.key.endpoint(endpoint), func() []line { return pw.endpointChain(endpoint) })
	}
	if external != nil {
		add(p.key.chain(prefixExternal), func() []line { return pw.externalChain(external) })
	}
	if restricted != nil {
		add(p.key.chain(prefixFirewall), func() []line { return pw.firewallChain(restricted) })
	}
	return chains
}

// rule returns a rule for the port.
func (w *portWriter) rule(t ipt.Target, matches ...ipt.Match) line {
	return line{ipt.Rule{Matches: matches, Target: t}, w.key}
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

// poolChain renders the chain that balances over a pool.
func (w *portWriter) poolChain(c *poolChain) []line {
	is := protocol(w.key.protocol)
	lines := make([]line, 0, len(c.clusterIPs)+len(c.pool.Endpoints))
	for _, r := range c.clusterIPs {
		if head, ok := w.masqueraded(r); ok {
			port := r.Frontend.Port
			lines = append(lines, w.rule(ipt.Jump(chainMark), append(head, is, comment(w.key.name+" "+r.Kind.String()), dport(w.key.protocol, port, port))...))
		}
	}
	var name ipt.Match // every chain contains the Service's name once
	if len(lines) == 0 {
		name = comment(w.key.name)
	}
	if w.affinity > 0 {
		for _, endpoint := range c.pool.Endpoints {
			lines = append(lines, w.rule(w.send(endpoint), is, name, w.recent(endpoint, w.affinity)))
			name = nil
		}
	}
	for i, endpoint := range c.pool.Endpoints {
		drawn, enlisted := ipt.Match(nil), ipt.Match(nil)
		if left := len(c.pool.Endpoints) - i; left > 1 {
			drawn = chance(left)
		}
		if !w.hairpin(endpoint) { // whose own chain does that
			enlisted = w.recent(endpoint, 0)
		}
		lines = append(lines, w.rule(w.send(endpoint), is, name, drawn, enlisted))
		name = nil
	}
	return lines
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

// endpointChain renders the chain of an endpoint that may reach itself. Its own connections are marked, so that
// KUBE-FORWARD accepts them and KUBE-POSTROUTING masquerades them: otherwise its replies would not pass the node.
func (w *portWriter) endpointChain(endpoint netip.AddrPort) []line {
	return []line{
		w.rule(ipt.Jump(chainMark), source(host(endpoint.Addr())), comment(w.key.name)),
		w.rule(ipt.DNAT(endpoint), protocol(w.key.protocol), w.recent(endpoint, 0)),
	}
}

// masqueraded matches the connections to a cluster IP that are masqueraded, if any are.
func (w *writer) masqueraded(r *plan.Route) (matches []ipt.Match, ok bool) {
	switch r.Masquerade {
	case plan.MasqueradeAll:
		return []ipt.Match{destination(host(r.Frontend.Addr))}, true
	case plan.MasqueradeOffCluster:
		return w.localTraffic(false, r.Frontend.Addr)
	default:
		return nil, false
	}
}

// externalChain renders the chain of connections to any address but the cluster IP.
func (w *portWriter) externalChain(r *plan.Route) []line {
	say := func(what string) ipt.Match { return comment(w.key.name + what) }
	everywhere, here := ipt.Jump(w.key.chain(prefixCluster)), ipt.Jump(w.key.chain(prefixLocal))
	if r.ShortCut == nil {
		to := everywhere
		if r.Policy == cluster.PolicyLocal {
			to = here
		}
		if r.Masquerade == plan.MasqueradeAll {
			return []line{w.rule(ipt.Jump(chainMark), say(" from outside")), w.rule(to)}
		}
		return []line{w.rule(to, say(" from outside"))}
	}
	// The node's own connections may go to any endpoint, but the replies must return through the node.
	own := ipt.LocalSource
	lines := []line{w.rule(ipt.Jump(chainMark), say(" from this node"), own), w.rule(everywhere, own)}
	if head, ok := w.localTraffic(true, netip.Addr{}); ok {
		lines = append(lines, w.rule(everywhere, append(head, say(" from local pods"))...))
	}
	if len(r.Pool.Endpoints) > 0 {
		lines = append(lines, w.rule(here))
	}
	return lines
}

// firewallChain renders the chain that checks source ranges. Connections that fall through are not translated, and are
// dropped in the filter table.
func (w *portWriter) firewallChain(r *plan.Route) (lines []line) {
	for _, from := range r.SourceRanges {
		lines = append(lines, w.rule(ipt.Jump(w.key.chain(prefixExternal)), source(from), comment(w.key.name+" let in")))
	}
	return lines
}

// frontendRules renders the rules of one frontend, by place.
func (w *writer) frontendRules(r *plan.Route) (rules [places][]line) {
	f, key := r.Frontend, keyOf(r)
	is, port := protocol(f.Protocol), dport(f.Protocol, f.Port, f.Port)
	at := ipt.Match(nil)
	if !f.IsNodePort() {
		at = destination(host(f.Addr))
	}
	add := func(p place, t ipt.Target, matches ...ipt.Match) {
		rules[p] = append(rules[p], line{ipt.Rule{Matches: matches, Target: t}, key})
	}
	if served(r) {
		p := natOthers
		switch {
		case f.IsNodePort():
			p = natNodePorts
		case r.Kind == plan.ClusterIP && w.inServiceCIDR(f.Addr):
			p = natClusterIPs
		}
		tell := [...]string{plan.ClusterIP: " cluster IP", plan.ExternalIP: " external IP", plan.LoadBalancerIP: " loadbalancer IP", plan.NodePort: ""}
		add(p, ipt.Jump(entryChain(r)), at, is, comment(r.Name+tell[r.Kind]), port)
	}
	if len(r.SourceRanges) > 0 {
		// Connections from allowed sources were translated before, unless there is no endpoint: then they continue, to
		// be refused.
		if r.Verdict == plan.Reject {
			for _, from := range r.SourceRanges {
				add(filterRestricted, ipt.Return, source(from), at, is, port)
			}
		}
		add(filterRestricted, ipt.Drop, destination(host(f.Addr)), is, comment(r.Name+" from elsewhere"), port)
	}
	refuse := w.refusal(r.Verdict)
	if refuse == nil {
		return rules
	}
	tell, p, on := " has no endpoints", filterOthers, []onNode{{address: at}}
	if r.Reason() == plan.NoLocalEndpoints {
		tell = " has no local endpoints"
	}
	switch {
	case f.IsNodePort():
		p, on = filterNodePorts, w.onNode()
	case r.Kind == plan.ClusterIP:
		p = filterClusterIPs
	}
	for _, on := range on {
		add(p, refuse, on.address, is, comment(r.Name+tell), on.local, port)
	}
	return rules
}

// frontendBodies returns the rules of one frontend, by place.
func (w *writer) frontendBodies(r *plan.Route) (bodies [places]body) {
	for at, lines := range w.frontendRules(r) {
		if len(lines) > 0 {
			bodies[at] = body{len(lines), func() []line { return w.frontendRules(r)[at] }}
		}
	}
	return bodies
}
