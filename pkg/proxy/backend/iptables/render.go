package iptables

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// rendering is a ruleset with the state from which the next one is rendered.
type rendering struct {
	ruleset
	from   *plan.Plan
	ports  cluster.Map[portKey, *port]
	trees  [places]*tree
	health cluster.Map[healthPort, bool]
	// fences counts the ports whose connections each fence bounds.
	fences cluster.Map[fence, int]
}

// healthPort is a health check node port of a Service.
type healthPort struct {
	port    uint16
	service cluster.ServiceName
}

// Compare sorts by port, then Service.
func (h healthPort) Compare(o healthPort) int {
	return cmp.Or(cmp.Compare(h.port, o.port), h.service.Compare(o.service))
}

// renderer holds the inputs of render besides the plan.
type renderer struct {
	family cluster.Family
	opts   Options
	can    capabilities
}

// render returns the ruleset of a plan. last is an earlier result of the same renderer, or nil; it saves the work for
// everything that has not changed since, and never affects the result.
func (r *renderer) render(p *plan.Plan, last *rendering) *rendering {
	if last == nil || last.from.Node != p.Node {
		last = &rendering{from: &plan.Plan{Node: p.Node}}
	}
	w := newWriter(r.family, p.Node, r.opts, r.can)
	c := &composition{writer: w, plan: p, chains: last.chains.Edit(), ports: last.ports.Edit(), fences: last.fences.Edit(), touched: map[portKey][]rerouted{}}
	if added := p.Frontends.Len() - last.from.Frontends.Len(); added > 0 { // almost all of them are cluster IPs
		c.edits[natClusterIPs] = make([]*entry, 0, added)
	}
	for frontend, change := range cluster.Changes(last.from.Frontends, p.Frontends) {
		if frontend.Family() == r.family {
			c.frontend(frontend, change)
		}
	}
	health := last.health.Edit()
	for name, change := range cluster.Changes(last.from.Services, p.Services) {
		c.service(health, name, change)
	}
	for key, changes := range c.touched {
		c.port(last, key, changes)
	}
	want := &rendering{from: p, ports: c.ports.Map(), fences: c.fences.Map(), health: health.Map(), trees: c.grow(last.trees)}
	for name, rules := range w.namedChains(want) {
		c.put(name, &chain{body: kept(rules), rank: rankTop})
	}
	for name, rules := range w.fixedChains() {
		c.put(name, &chain{body: kept(rules), rank: rankFixed})
	}
	want.ruleset = ruleset{chains: c.chains.Map(), hooks: w.hooks(), localnet: w.localnet()}
	return want
}

// composition is the work on one rendering.
type composition struct {
	*writer
	plan   *plan.Plan
	chains *cluster.Editor[chainName, *chain]
	ports  *cluster.Editor[portKey, *port]
	fences *cluster.Editor[fence, int]
	// touched are the ports to render again, with the frontends of each that change.
	touched map[portKey][]rerouted
	edits   [places][]*entry
}

// rerouted is a frontend with its new route; nil if its port has lost it.
type rerouted struct {
	frontend plan.Frontend
	route    *plan.Route
}

// put sets a chain. An existing chain with the same lines keeps its identity.
func (c *composition) put(name chainName, now *chain) {
	if old, ok := c.chains.Get(name); !ok || !old.body.equal(now.body) {
		c.chains.Set(name, now)
	}
}

// frontend applies a change of a frontend.
func (c *composition) frontend(f plan.Frontend, change cluster.Change[*plan.Route]) {
	var before, after [places]body
	if change.Was {
		c.reroute(keyOf(change.Before), f, nil)
		before = c.frontendBodies(change.Before)
	}
	if change.Is {
		c.reroute(keyOf(change.After), f, change.After)
		after = c.frontendBodies(change.After)
	}
	for at := range places {
		if !before[at].equal(after[at]) {
			c.edits[at] = append(c.edits[at], &entry{f, after[at]})
		}
	}
}

// reroute sets a port's route for a frontend, or removes it (nil).
func (c *composition) reroute(key portKey, f plan.Frontend, route *plan.Route) {
	c.touched[key] = append(c.touched[key], rerouted{f, route})
}

// with returns the routes of a port after some changes; p may be nil. A port may have tens of thousands, and all may change at once.
func (p *port) with(changes []rerouted) (routes []*plan.Route) {
	if p != nil {
		changed := make(map[plan.Frontend]bool, len(changes))
		for _, to := range changes {
			changed[to.frontend] = true
		}
		routes = slices.DeleteFunc(slices.Clone(p.routes), func(r *plan.Route) bool { return changed[r.Frontend] })
	}
	for _, to := range changes {
		if to.route != nil {
			routes = append(routes, to.route)
		}
	}
	slices.SortFunc(routes, func(a, b *plan.Route) int { return a.Frontend.Compare(b.Frontend) })
	return routes
}

// service applies a change of a Service that is not visible in its frontends.
func (c *composition) service(health *cluster.Editor[healthPort, bool], name cluster.ServiceName, change cluster.Change[*plan.Service]) {
	if change.Was && change.Before.HealthCheck != nil {
		health.Delete(healthPort{change.Before.HealthCheck.Port, name})
	}
	if change.Is && change.After.HealthCheck.In(c.family) {
		health.Set(healthPort{change.After.HealthCheck.Port, name}, true)
	}
	if change.Was && change.Is && !slices.Equal(change.Before.HairpinAddrs(), change.After.HairpinAddrs()) {
		for _, route := range change.After.Routes {
			c.touched[keyOf(route)] = c.touched[keyOf(route)] // rendered again, with the same routes
		}
	}
}

// port renders the chains of a port that has changed, and removes those that it no longer needs.
func (c *composition) port(last *rendering, key portKey, changes []rerouted) {
	before, was := last.ports.Get(key)
	now := &port{key: key, routes: before.with(changes)}
	if len(now.routes) > 0 {
		service, _ := c.plan.Services.Get(now.routes[0].Service)
		for _, named := range c.portChains(now, service.HairpinAddrs()) {
			c.put(named.name, named.chain)
			now.chains = append(now.chains, named.name)
		}
		c.ports.Set(key, now)
		c.bound(now, 1)
	} else {
		c.ports.Delete(key)
	}
	if was {
		c.bound(before, -1)
		needed := make(map[chainName]bool, len(now.chains))
		for _, name := range now.chains {
			needed[name] = true
		}
		for _, name := range before.chains {
			if !needed[name] {
				c.chains.Delete(name)
			}
		}
	}
}

// bound adds n, 1 or -1, to the users of a port's fence.
func (c *composition) bound(p *port, n int) {
	f, bounded := p.fence()
	if !bounded {
		return
	}
	name := chainName{tableNAT, f.chain()}
	users, _ := c.fences.Get(f)
	if users+n == 0 {
		c.fences.Delete(f)
		c.chains.Delete(name)
		return
	}
	c.fences.Set(f, users+n)
	c.put(name, &chain{body: kept(f.rules(c.fullMask.BitLen())), rank: rankFixed})
}

// grow renders the new trees and their chains.
func (c *composition) grow(before [places]*tree) (after [places]*tree) {
	for at, d := range dispatches(c.capabilities) {
		after[at] = d.shape.edit(before[at], c.edits[at])
		walk(before[at], after[at], nil, func(path []int, was, is *tree) {
			switch name := d.chain(path); {
			case hasChain(path, is):
				c.put(name, c.chainOf(&d, path, is))
			case hasChain(path, was):
				c.chains.Delete(name)
			}
		})
	}
	return after
}

// namedChains renders the chains that built-in chains lead to.
func (w *writer) namedChains(r *rendering) map[chainName][]ipt.Rule {
	d := dispatches(w.capabilities)
	all, marked := ipt.Match(nil), ipt.Mark{Value: w.mark, Mask: w.mark}
	entrance := func(at place, gates ...ipt.Match) []ipt.Rule { return d[at].entrance(r.trees[at], gates...) }
	services := slices.Concat(entrance(natClusterIPs, w.gates()...), entrance(natOthers, all))
	if w.localnet() {
		services = append(services, loopbackReceived(w.loopback))
	}
	for _, on := range w.onNode() {
		services = append(services, rule(ipt.Jump(chainNodePorts), on.address, comment("node ports"), on.local))
	}
	var health []ipt.Rule
	for h := range r.health.All() {
		health = append(health, rule(ipt.Accept, protocol(cluster.TCP), comment(h.service.String()+" health check node port"), dport(cluster.TCP, h.port, h.port)))
	}
	return map[chainName][]ipt.Rule{
		{tableNAT, chainServices}:  services,
		{tableNAT, chainNodePorts}: entrance(natNodePorts, all),
		{tableNAT, chainPostrouting}: {
			rule(ipt.Return, ipt.Not(marked)),
			// The mark is removed again, so that a packet that passes here twice, for example in a tunnel, is
			// masqueraded once.
			rule(ipt.SetMark{Value: w.mark, Mask: 0}),
			rule(ipt.Masquerade{}, comment("kubernetes service traffic requiring SNAT"))},
		{tableFilter, chainServices}:  entrance(filterClusterIPs, all),
		{tableFilter, chainExternal}:  entrance(filterNodePorts, all),
		{tableFilter, chainFirewall}:  slices.Concat(entrance(filterRestricted, all), entrance(filterOthers, all), w.localhostCounter(), w.loops()),
		{tableFilter, chainNodePorts}: health,
		{tableFilter, chainForward}:   w.forward(marked),
	}
}

// forward renders the chain that accepts forwarded packets. Those of established connections, which are most of them, are
// accepted by its first rule. It has no comment: that is a match of its own, which costs 0.4 % of each packet in the nft variant.
func (w *writer) forward(marked ipt.Match) []ipt.Rule {
	rules := []ipt.Rule{rule(ipt.Accept, ipt.Related|ipt.Established)}
	if w.capabilities.dropInvalid {
		rules = append(rules, invalidRule())
	}
	return append(rules, rule(ipt.Accept, comment("kubernetes forwarding rules"), marked))
}

// fixedChains renders the chains without jumps, which are always the same.
func (w *writer) fixedChains() map[chainName][]ipt.Rule {
	return map[chainName][]ipt.Rule{
		{tableNAT, chainMark}:      {rule(ipt.SetMark{Value: w.mark, Mask: w.mark})},
		{tableFilter, chainCanary}: nil,
		{tableNAT, chainCanary}:    nil,
		{tableMangle, chainCanary}: nil,
	}
}

// hooks returns the rules in built-in chains, in the order in which they are inserted at the head: the last one comes first.
func (w *writer) hooks() []hook {
	in := func(table, chain, to string, matches ...ipt.Match) hook {
		return hook{chainName{table, chain}, to, rule(ipt.Jump(to), matches...)}
	}
	isNew := ipt.New
	portals, external := comment("kubernetes service portals"), comment("kubernetes externally-visible service portals")
	health, firewall := comment("kubernetes health check service ports"), comment("kubernetes load balancer firewall")
	hooks := []hook{
		in(tableFilter, "INPUT", chainExternal, isNew, external),
		in(tableFilter, "FORWARD", chainExternal, isNew, external),
		in(tableFilter, "INPUT", chainNodePorts, health),
		in(tableFilter, "FORWARD", chainServices, isNew, portals),
		in(tableFilter, "OUTPUT", chainServices, isNew, portals),
		in(tableFilter, "FORWARD", chainForward, comment("kubernetes forwarding rules")),
		in(tableFilter, "INPUT", chainFirewall, isNew, firewall),
		in(tableFilter, "OUTPUT", chainFirewall, isNew, firewall),
		in(tableFilter, "FORWARD", chainFirewall, isNew, firewall),
		in(tableNAT, "POSTROUTING", chainPostrouting, comment("kubernetes postrouting rules")),
		in(tableNAT, "OUTPUT", chainServices, portals),
		in(tableNAT, "PREROUTING", chainServices, portals),
	}
	if w.localnet() {
		hooks = append(hooks, localnetHooks()...)
	}
	return hooks
}

// localnetHooks returns the rules that lead to localnetRules.
func localnetHooks() []hook {
	to := rule(ipt.Jump(chainLocalnet))
	return []hook{{chainName{tableFilter, "OUTPUT"}, chainLocalnet, to}, {chainName{tableFilter, "INPUT"}, chainLocalnet, to}}
}

// localnetRules drop packets from neighbours and pods to 127.0.0.0/8. The kubelet writes the first one, which must be the same. It
// lets packets pass whose source is a loopback address too, so the second one drops those that are not the node's own.
func localnetRules() []ipt.Rule {
	loopback := netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	return []ipt.Rule{
		rule(ipt.Drop, ipt.Not(source(loopback)), destination(loopback), comment("block incoming localnet connections"),
			ipt.Not(ipt.Related|ipt.Established|ipt.Translated)),
		rule(ipt.Drop, source(loopback), destination(loopback), ipt.Not(ipt.In("lo")), ipt.Not(ipt.Out("lo")), comment("block forged localnet sources")),
	}
}

// loopbackReceived keeps packets to 127.0.0.0/8 from the node ports unless the node itself sends them, on lo. Those that it has
// received are not translated, so that localnetRules drops them.
func loopbackReceived(loopback netip.Prefix) ipt.Rule {
	return rule(ipt.Return, destination(loopback), ipt.Not(ipt.Out("lo")), comment("localhost is this node only"))
}

// invalidRule drops packets that conntrack considers invalid, and counts them.
func invalidRule() ipt.Rule { return rule(ipt.Drop, ipt.Invalid) }

// localhostRule only counts connections to node ports on localhost. It recognises them by their original destination
// and by the mark that the nat table sets, which only the first packet of a connection has. It is in the filter table,
// which is small, so that the counter can be read often (docs/decisions/0014).
func localhostRule(mark uint32) ipt.Rule {
	return rule(nil, comment("node ports on localhost, counted"), ipt.Mark{Value: mark, Mask: mark}, ipt.Original(netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)))
}

// loops refuses new connections that would come back to the node if the network routes cluster IPs to it: those whose endpoint is
// a cluster IP, and those from a cluster IP, which only a forged packet has as its source. An address of this machine is not
// forged: ipvs mode assigns cluster IPs to it. These rules come before KUBE-FORWARD, which accepts what is masqueraded. In a cluster whose
// ranges overlap, where Services may work all the same, there are none.
func (w *writer) loops() (all []ipt.Rule) {
	for _, cidr := range w.serviceCIDRs {
		if w.cidr.Overlaps(cidr) || slices.ContainsFunc(w.node.Addrs, cidr.Contains) {
			continue
		}
		all = append(all,
			rule(w.reject, destination(cidr), comment("endpoint that is a cluster IP"), ipt.Translated),
			rule(ipt.Drop, source(cidr), comment("forged cluster IP"), ipt.Not(ipt.LocalSource)))
	}
	return all
}

// localhostCounter returns that rule, if there is anything to count.
func (w *writer) localhostCounter() []ipt.Rule {
	if !w.localnet() {
		return nil
	}
	return []ipt.Rule{localhostRule(w.mark)}
}
