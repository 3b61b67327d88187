package iptables

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// port is one port of a Service in one family, with the frontends it has, sorted. It never changes.
type port struct {
	key    portKey
	routes []*plan.Route
	// chains are those that were rendered for it.
	chains []chainName
}

// namedChain is a chain with its name.
type namedChain struct {
	name  chainName
	lines []line
}

// served tells whether the nat table has anything to do with connections to a frontend.
func served(r *plan.Route) bool { return r.Verdict == plan.Balance || r.ShortCut != nil }

// goesTo is the chain that connections to a frontend are sent to.
func goesTo(r *plan.Route) string {
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

// portChains renders the chains that a port needs. The plan gives all frontends of a port the same endpoints under the
// same policy, and all external ones the same treatment; so the first that needs a chain tells what is in it. hairpins are the
// addresses that may reach themselves through the Service.
func (w *writer) portChains(p *port, hairpins []netip.Addr) []namedChain {
	var byPolicy [2]*poolChain
	use := func(policy cluster.Policy, pool *plan.Pool, r *plan.Route) {
		if len(pool.Endpoints) > 0 && byPolicy[policy] == nil {
			byPolicy[policy] = &poolChain{pool: pool, route: r, hairpins: hairpins}
		}
	}
	var external, restricted *plan.Route
	for _, r := range p.routes {
		if !served(r) {
			continue
		}
		use(r.Policy, r.Pool, r)
		if r.ShortCut != nil {
			use(cluster.PolicyCluster, r.ShortCut, r)
		}
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
	var chains []namedChain
	add := func(prefix string, lines []line) {
		chains = append(chains, namedChain{chainName{tableNAT, p.key.chain(prefix)}, lines})
	}
	if c := byPolicy[cluster.PolicyCluster]; c != nil {
		add(prefixCluster, w.poolChain(p.key, c))
	}
	if c := byPolicy[cluster.PolicyLocal]; c != nil {
		add(prefixLocal, w.poolChain(p.key, c))
	}
	for _, endpoint := range hairpinEndpoints(byPolicy[:]) {
		chains = append(chains, namedChain{chainName{tableNAT, p.key.endpoint(endpoint)}, w.endpointChain(p, endpoint)})
	}
	if external != nil {
		add(prefixExternal, w.externalChain(external))
	}
	if restricted != nil {
		add(prefixFirewall, w.firewallChain(restricted))
	}
	return chains
}

// poolChain is what the chain of one policy's endpoints is made of.
type poolChain struct {
	pool *plan.Pool
	// route is any that uses the pool, clusterIPs those by which packets come to it directly.
	route      *plan.Route
	clusterIPs []*plan.Route
	// hairpins are the addresses whose endpoints have a chain of their own.
	hairpins []netip.Addr
}

// hairpinEndpoints are the endpoints of all pools of a port that may reach themselves, each once.
func hairpinEndpoints(pools []*poolChain) []netip.AddrPort {
	var all []netip.AddrPort
	for _, c := range pools {
		if c == nil {
			continue
		}
		for _, endpoint := range c.pool.Endpoints {
			if slices.Contains(c.hairpins, endpoint.Addr()) && !slices.Contains(all, endpoint) {
				all = append(all, endpoint)
			}
		}
	}
	return all
}

// endpointChain renders the chain of an endpoint that may reach itself. Its own connections are marked, which makes
// KUBE-FORWARD accept them and KUBE-POSTROUTING masquerade them: otherwise the endpoint would answer itself directly.
func (w *writer) endpointChain(p *port, endpoint netip.AddrPort) []line {
	owner := p.key.String()
	text := "-p " + protocolName(p.key.protocol)
	if affinity := p.routes[0].Affinity; affinity > 0 {
		text += w.recent(true, p.key.endpoint(endpoint), 0)
	}
	return []line{
		{"-s " + host(endpoint.Addr()) + comment(p.key.name) + " -j " + chainMark, owner},
		{text + dnat(endpoint), owner},
	}
}

// dnat is the target that sends a connection to an endpoint.
func dnat(endpoint netip.AddrPort) string { return " -j DNAT --to-destination " + endpoint.String() }

// poolChain renders the chain that balances over a pool. Only endpoints that may reach themselves have a chain of their
// own: half as many chains load twice as fast, and the legacy variant copies every rule with every change.
func (w *writer) poolChain(key portKey, c *poolChain) []line {
	owner := key.String()
	var lines []line
	for _, r := range c.clusterIPs {
		if head, ok := w.masqueradeHead(r); ok {
			lines = append(lines, line{head + "-p " + protocolName(key.protocol) + comment(key.name+" "+r.Kind.String()) +
				dport(key.protocol, r.Frontend.Port) + " -j " + chainMark, owner})
		}
	}
	// Every chain says once whose it is.
	name := ""
	if len(lines) == 0 {
		name = comment(key.name)
	}
	head := "-p " + protocolName(key.protocol)
	to := func(endpoint netip.AddrPort) string {
		if slices.Contains(c.hairpins, endpoint.Addr()) {
			return " -j " + key.endpoint(endpoint)
		}
		return dnat(endpoint)
	}
	if c.route.Affinity > 0 {
		for _, endpoint := range c.pool.Endpoints {
			lines = append(lines, line{head + name + w.recent(false, key.endpoint(endpoint), c.route.Affinity) + to(endpoint), owner})
			name = ""
		}
	}
	for i, endpoint := range c.pool.Endpoints {
		text := head + name
		if left := len(c.pool.Endpoints) - i; left > 1 {
			text += chance(left)
		}
		if c.route.Affinity > 0 && !slices.Contains(c.hairpins, endpoint.Addr()) { // whose chain does that
			text += w.recent(true, key.endpoint(endpoint), 0)
		}
		lines = append(lines, line{text + to(endpoint), owner})
		name = ""
	}
	return lines
}

// masqueradeHead is the head of the rule that marks a cluster IP's connections, if any are to be.
func (w *writer) masqueradeHead(r *plan.Route) (head string, ok bool) {
	switch r.Masquerade {
	case plan.MasqueradeAll:
		return "-d " + host(r.Frontend.Addr) + " ", true
	case plan.MasqueradeOffCluster:
		return w.fromLocal(false, r.Frontend.Addr)
	default:
		return "", false
	}
}

// externalChain renders the chain that connections from outside of the cluster enter by.
func (w *writer) externalChain(r *plan.Route) []line {
	key := keyOf(r)
	owner := key.String()
	say := func(head, what, target string) line {
		return line{head + comment(key.name + what)[1:] + " -j " + target, owner}
	}
	if r.ShortCut == nil {
		to := key.chain(prefixCluster)
		if r.Policy == cluster.PolicyLocal {
			to = key.chain(prefixLocal)
		}
		if r.Masquerade == plan.MasqueradeAll {
			return []line{say("", " from outside", chainMark), {"-j " + to, owner}}
		}
		return []line{say("", " from outside", to)}
	}
	// The node's own connections may go anywhere, but their answers must come back through the node.
	const own = " -m addrtype --src-type LOCAL"
	lines := []line{
		{comment(key.name + " from this node")[1:] + own + " -j " + chainMark, owner},
		{own[1:] + " -j " + key.chain(prefixCluster), owner},
	}
	if head, ok := w.fromLocal(true, netip.Addr{}); ok {
		lines = append(lines, say(head, " from local pods", key.chain(prefixCluster)))
	}
	if len(r.Pool.Endpoints) > 0 {
		lines = append(lines, line{"-j " + key.chain(prefixLocal), owner})
	}
	return lines
}

// firewallChain renders the chain that lets the sources in that may use a load balancer's address. Whoever falls through
// is not translated, and is dropped in the filter table.
func (w *writer) firewallChain(r *plan.Route) []line {
	key := keyOf(r)
	var lines []line
	for _, from := range r.SourceRanges {
		lines = append(lines, line{source(from) + comment(key.name + " let in")[1:] + " -j " + key.chain(prefixExternal), key.String()})
	}
	return lines
}
