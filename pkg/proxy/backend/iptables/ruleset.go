package iptables

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// ruleset is one family's chains as a value: what there should be, as render makes it, or what there is, as parse reads
// it. It never changes, and shares with its predecessor what is equal.
type ruleset struct {
	family cluster.Family
	// chains are those that belong to this proxy alone, by table and name.
	chains cluster.Map[chainName, *chain]
	// jumps are the rules in built-in chains that lead to them.
	jumps []jump
	// localnet tells that node ports are served on 127.0.0.0/8.
	localnet bool

	// The rest is what render goes on from; a ruleset that was read has none of it.
	from    *plan.Plan
	without map[portKey]*leftOut
	ports   cluster.Map[portKey, *port]
	trees   [places]*tree
	health  cluster.Map[healthPort, bool]
}

// chain is the rules of a chain, in their order.
type chain struct {
	lines []line
	// unit names the chains of one port of a Service, which are written together; empty for all others.
	unit string
	// read tells that iptables wrote them, which may put a rule's parts in another order than render.
	read bool
}

// growth is how many rules each table has more than in an earlier ruleset; nil is an empty one.
func (r *ruleset) growth(earlier *ruleset) map[string]int {
	if earlier == nil {
		earlier = &ruleset{}
	}
	more := map[string]int{}
	for name, change := range cluster.Changes(earlier.chains, r.chains) {
		more[name.table] += change.After.len() - change.Before.len()
	}
	return more
}

// len is the number of rules; that of no chain is 0.
func (c *chain) len() int {
	if c == nil {
		return 0
	}
	return len(c.lines)
}

// jump is a rule in a built-in chain that leads to a chain of ours.
type jump struct {
	from chainName
	// match are the rule's words before its target.
	match []string
	to    string
}

// rule is the whole rule in words.
func (j jump) rule() []string { return append(slices.Clone(j.match), "-j", j.to) }

// healthPort is a node's port where load balancers ask about a Service.
type healthPort struct {
	port    uint16
	service cluster.ServiceName
}

// Compare sorts by port, then Service.
func (h healthPort) Compare(o healthPort) int {
	if order := cmp.Compare(h.port, o.port); order != 0 {
		return order
	}
	return h.service.Compare(o.service)
}

// renderer is what a ruleset is rendered by, beside the plan.
type renderer struct {
	family cluster.Family
	opts   Options
	can    capabilities
	// without are the ports that iptables refused.
	without map[portKey]*leftOut
}

// render makes the ruleset of a plan. last is an earlier ruleset by the same renderer or nil; what it was made of and
// did not change since is taken over, and the result is equal.
func (r *renderer) render(p *plan.Plan, last *ruleset) *ruleset {
	if last == nil || last.from == nil || last.from.Node != p.Node || !sameKeys(last.without, r.without) {
		last = &ruleset{from: &plan.Plan{Node: p.Node}}
	}
	w := newWriter(r.family, p.Node, r.opts, r.can)
	c := &composition{writer: w, plan: p, without: r.without,
		chains: last.chains.Edit(), ports: last.ports.Edit(), touched: map[portKey]bool{}}
	for frontend, change := range cluster.Changes(last.from.Frontends, p.Frontends) {
		if frontend.Family() == r.family {
			c.frontend(frontend, change)
		}
	}
	for _, change := range cluster.Changes(last.from.Services, p.Services) {
		if change.Was && change.Is && !slices.Equal(change.Before.HairpinAddrs, change.After.HairpinAddrs) {
			for _, route := range change.After.Routes {
				if _, ours := c.ports.Get(keyOf(route)); ours {
					c.touched[keyOf(route)] = true
				}
			}
		}
	}
	for key := range c.touched {
		c.port(last, key)
	}
	want := &ruleset{family: r.family, from: p, without: r.without, ports: c.ports.Map(), health: healthPorts(last, p, r.family),
		localnet: w.localnet()}
	want.trees = c.grow(last.trees)
	for _, named := range w.topChains(want) {
		c.put(named.name, named.lines, "")
	}
	want.chains = c.chains.Map()
	want.jumps = w.jumps()
	return want
}

func sameKeys[K comparable, V any](a, b map[K]V) bool {
	for key := range a {
		if _, ok := b[key]; !ok {
			return false
		}
	}
	return len(a) == len(b)
}

// composition is the work on one ruleset.
type composition struct {
	*writer
	plan    *plan.Plan
	without map[portKey]*leftOut
	chains  *cluster.Editor[chainName, *chain]
	ports   *cluster.Editor[portKey, *port]
	touched map[portKey]bool
	edits   [places][]edit
}

// put makes a chain hold lines; a chain that holds them already keeps its identity.
func (c *composition) put(name chainName, lines []line, unit string) {
	if old, ok := c.chains.Get(name); ok && slices.Equal(old.lines, lines) {
		return
	}
	c.chains.Set(name, &chain{lines: lines, unit: unit})
}

// frontend takes up a change of a frontend.
func (c *composition) frontend(f plan.Frontend, change cluster.Change[*plan.Route]) {
	if change.Was {
		c.reroute(keyOf(change.Before), f, nil)
	}
	if change.Is {
		c.reroute(keyOf(change.After), f, change.After)
	}
	var before, after [places][]line
	if change.Was && c.without[keyOf(change.Before)] == nil {
		before = c.entries(change.Before)
	}
	if change.Is && c.without[keyOf(change.After)] == nil {
		after = c.entries(change.After)
	}
	for at := range places {
		if !slices.Equal(before[at], after[at]) {
			c.edits[at] = append(c.edits[at], edit{f, after[at]})
		}
	}
}

// reroute sets or takes away (nil) a port's route for a frontend.
func (c *composition) reroute(key portKey, f plan.Frontend, route *plan.Route) {
	c.touched[key] = true
	now := &port{key: key}
	if old, ok := c.ports.Get(key); ok {
		now.chains = old.chains
		now.routes = slices.DeleteFunc(slices.Clone(old.routes), func(r *plan.Route) bool { return r.Frontend == f })
	}
	if route != nil {
		now.routes = append(now.routes, route)
		slices.SortFunc(now.routes, func(a, b *plan.Route) int { return a.Frontend.Compare(b.Frontend) })
	}
	if len(now.routes) == 0 {
		c.ports.Delete(key)
		return
	}
	c.ports.Set(key, now)
}

// port renders the chains of a port that changed.
func (c *composition) port(last *ruleset, key portKey) {
	var chains []chainName
	if now, ok := c.ports.Get(key); ok {
		if c.without[key] == nil {
			service, _ := c.plan.Services.Get(now.routes[0].Service)
			for _, named := range c.portChains(now, service.HairpinAddrs) {
				c.put(named.name, named.lines, key.String())
				chains = append(chains, named.name)
			}
		}
		c.ports.Set(key, &port{key: key, routes: now.routes, chains: chains})
	}
	if before, was := last.ports.Get(key); was {
		for _, name := range before.chains {
			if !slices.Contains(chains, name) {
				c.chains.Delete(name)
			}
		}
	}
}

// grow makes the new trees, and their chains.
func (c *composition) grow(before [places]*tree) (after [places]*tree) {
	for at, d := range dispatches() {
		after[at] = d.shape.edit(before[at], c.edits[at])
		walk(before[at], after[at], nil, func(path []int, was, is *tree) {
			switch name := d.nodeChain(path); {
			case d.hasChain(path, is):
				c.put(name, c.nodeLines(&d, path, is), "")
			case d.hasChain(path, was):
				c.chains.Delete(name)
			}
		})
	}
	return after
}

// healthPorts lists the health check node ports of a family.
func healthPorts(last *ruleset, p *plan.Plan, family cluster.Family) cluster.Map[healthPort, bool] {
	health := last.health.Edit()
	for name, change := range cluster.Changes(last.from.Services, p.Services) {
		if change.Was && change.Before.HealthCheck != nil {
			health.Delete(healthPort{change.Before.HealthCheck.Port, name})
		}
		if change.Is && change.After.HealthCheck.In(family) {
			health.Set(healthPort{change.After.HealthCheck.Port, name}, true)
		}
	}
	return health.Map()
}

// topChains renders the chains that others know by name.
func (w *writer) topChains(r *ruleset) []namedChain {
	d := dispatches()
	parent := func(at place, gates ...string) []line { return w.inParent(&d[at], r.trees[at], gates...) }
	services := slices.Concat(parent(natClusterIPs, w.gates()...), parent(natOthers, ""))
	for _, on := range w.onNode() {
		services = append(services, line{text: on.address + comment("node ports")[1:] + on.local + " -j " + chainNodePorts})
	}
	var health []line
	for h := range r.health.All() {
		health = append(health, line{text: "-p tcp" + comment(h.service.String()+" health check node port") + dport(cluster.TCP, h.port) + " -j ACCEPT"})
	}
	postrouting := []line{
		{text: "-m mark ! --mark " + w.mark + "/" + w.mark + " -j RETURN"},
		// The mark is taken off again: a packet that passes here twice, as through a tunnel, is masqueraded once.
		{text: "-j MARK --set-xmark " + w.mark + "/0x0"},
		{text: comment("kubernetes service traffic requiring SNAT")[1:] + " " + w.masquerade()}}
	var forward []line
	if w.capabilities.dropInvalid {
		forward = append(forward, line{text: ruleInvalid})
	}
	forward = append(forward,
		line{text: comment("kubernetes forwarding rules")[1:] + " -m mark --mark " + w.mark + "/" + w.mark + " -j ACCEPT"},
		line{text: comment("kubernetes forwarding conntrack rule")[1:] + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"})
	return []namedChain{
		{chainName{tableNAT, chainMark}, []line{{text: "-j MARK --set-xmark " + w.mark + "/" + w.mark}}},
		{chainName{tableNAT, chainPostrouting}, postrouting},
		{chainName{tableNAT, chainNodePorts}, parent(natNodePorts, "")},
		{chainName{tableNAT, chainServices}, services},
		{chainName{tableFilter, chainServices}, parent(filterClusterIPs, "")},
		{chainName{tableFilter, chainExternal}, slices.Concat(parent(filterOthers, ""), parent(filterNodePorts, ""))},
		{chainName{tableFilter, chainFirewall}, slices.Concat(parent(filterRestricted, ""), w.localhostCounter())},
		{chainName{tableFilter, chainNodePorts}, health},
		{chainName{tableFilter, chainForward}, forward},
		{chainName{tableFilter, chainCanary}, nil},
		{chainName{tableNAT, chainCanary}, nil},
		{chainName{tableMangle, chainCanary}, nil},
	}
}

// jumps are the rules in built-in chains, in the order in which they are put to the head: the last comes first.
func (w *writer) jumps() []jump {
	said := func(text string) []string { return []string{"-m", "comment", "--comment", text} }
	isNew := func(text string) []string {
		return append([]string{"-m", "conntrack", "--ctstate", "NEW"}, said(text)...)
	}
	const portals, external, health = "kubernetes service portals", "kubernetes externally-visible service portals",
		"kubernetes health check service ports"
	const forwarding, firewall, post = "kubernetes forwarding rules", "kubernetes load balancer firewall", "kubernetes postrouting rules"
	in := func(table, chain string, match []string, to string) jump {
		return jump{chainName{table, chain}, match, to}
	}
	jumps := []jump{
		in(tableFilter, "INPUT", isNew(external), chainExternal),
		in(tableFilter, "FORWARD", isNew(external), chainExternal),
		in(tableFilter, "INPUT", said(health), chainNodePorts),
		in(tableFilter, "FORWARD", isNew(portals), chainServices),
		in(tableFilter, "OUTPUT", isNew(portals), chainServices),
		in(tableFilter, "FORWARD", said(forwarding), chainForward),
		in(tableFilter, "INPUT", isNew(firewall), chainFirewall),
		in(tableFilter, "OUTPUT", isNew(firewall), chainFirewall),
		in(tableFilter, "FORWARD", isNew(firewall), chainFirewall),
		in(tableNAT, "POSTROUTING", said(post), chainPostrouting),
		in(tableNAT, "OUTPUT", said(portals), chainServices),
		in(tableNAT, "PREROUTING", said(portals), chainServices),
	}
	if w.localnet() {
		jumps = append(jumps, localnetJumps()...)
	}
	return jumps
}

// String names a jump.
func (j jump) String() string { return fmt.Sprintf("%s in %s of %s", j.to, j.from.name, j.from.table) }
