package nftables

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// content is what the sets and sized chains of one family's table hold, as an immutable value. The same type describes
// what a table should hold and what it does hold.
type content struct {
	frontends cluster.Map[plan.Frontend, *entry]
	// addrs are the sets of addresses. Addresses of the other family are not in the table.
	addrs [addrSets]cluster.Map[netip.Addr, int]
	// needs are the objects that the frontends need.
	needs
}

// addrSet numbers the sets of addresses.
type addrSet int

const (
	nodeAddrs addrSet = iota
	clusterIPs
	hairpins
	watched
	addrSets
)

// entry is everything that the table holds about one frontend. There is one for each address and port of each Service.
type entry struct {
	terms
	// slots are the elements of the endpoint map. An invalid address marks a slot that is missing in the kernel.
	slots []netip.AddrPort
	// rare is what few frontends have; nil if this one has nothing of it.
	rare *rareTerms
}

// terms are what the table holds about every frontend except its endpoints.
type terms struct {
	// comment names the Service in nft's listing.
	comment string
	// goes is the verdict in the frontend map.
	goes target
	// unserved reports that the frontend has no endpoint, and dropped that its packets are dropped, not rejected.
	unserved, dropped bool
	// limited reports that the frontend's connections are bounded.
	limited bool
	// onLocalhost reports that connections to the node port are rejected on loopback addresses.
	onLocalhost bool
	// fast reports that long connections take the fast path.
	fast bool
}

// rareTerms are what the table holds about frontends with source ranges, session affinity or an external policy Local.
type rareTerms struct {
	// from is the verdict in the firewall map, remember that in the map of frontends with affinity.
	from, remember target
	// affinity has the pools of the port if remember is set. They are not read from the kernel.
	affinity *plan.Affinity
	// sources are the source ranges of the chain from, fence the bounds of goes.fence. They are not read from the kernel.
	sources, fence *checks
	// local are the elements of the local endpoint map, as in entry.slots.
	local []netip.AddrPort
}

// getRare returns a copy of what few frontends have; zero if this one has nothing of it.
func (e *entry) getRare() (r rareTerms) {
	if e.rare != nil {
		r = *e.rare
	}
	return r
}

// editRare returns what few frontends have, to change it. It adds it if there is none.
func (e *entry) editRare() *rareTerms {
	if e.rare == nil {
		e.rare = &rareTerms{}
	}
	return e.rare
}

// sameTerms reports whether two entries differ in endpoints and source ranges at most.
func (e *entry) sameTerms(o *entry) bool {
	mine, others := e.getRare(), o.getRare()
	return e.terms == o.terms && mine.from == others.from && mine.remember == others.remember
}

// same reports whether two entries have the same elements.
func (e *entry) same(o *entry) bool {
	return e.sameTerms(o) && slices.Equal(e.slots, o.slots) && slices.Equal(e.getRare().local, o.getRare().local)
}

// checks is what a chain of kind from or bounds checks.
type checks struct {
	// ranges are sorted source ranges; none contains another.
	ranges []netip.Prefix
	fence  *cluster.Fence
}

// members are the endpoints of a pool with affinity.
type members struct {
	// users counts the frontends of the pool's service port.
	users int
	// endpoints are sorted.
	endpoints []netip.AddrPort
}

func (m *members) list() []netip.AddrPort {
	if m == nil {
		return nil
	}
	return m.endpoints
}

// has reports whether the pool, which may be nil, has an endpoint. There may be thousands, and each is asked for.
func (m *members) has(endpoint netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(m.list(), endpoint, netip.AddrPort.Compare)
	return found
}

// eachPool yields the pools of the entry's service port if its clients are remembered.
func (e *entry) eachPool(yield func(poolID, []netip.AddrPort)) {
	rare := e.getRare()
	if rare.remember.kind == none {
		return
	}
	var everywhere, here []netip.AddrPort
	if a := rare.affinity; a != nil {
		everywhere, here = a.Everywhere.Endpoints, a.Here.Endpoints
	}
	port := poolID(rare.remember.id)
	yield(port, everywhere)
	yield(port|localBit, here)
}

// remembers reports whether an element of a pool's affinity map is valid: the pool has the endpoint.
func (c *content) remembers(pool poolID, endpoint netip.AddrPort) bool {
	m, _ := c.pools.Get(pool)
	return m.has(endpoint)
}

// needs counts, for each object, the entries that need it.
type needs struct {
	// targets are the chains that verdicts lead to, and those that these lead to.
	targets cluster.Map[target, int]
	// lists are what chains of the kinds from and bounds check. They are not read from the kernel.
	lists cluster.Map[target, *checks]
	// sticky are the service ports with affinity, by their Cluster pools: each has two affinity maps. pools are their pools.
	sticky cluster.Map[poolID, int]
	pools  cluster.Map[poolID, *members]
	// services and endpoints count the elements that may count. They are not read from the kernel.
	services, endpoints int
	// fast counts the frontends with a fast path. They are not read from the kernel, either.
	fast int
}

// editor builds a content from another.
type editor struct {
	of        *content
	frontends *cluster.Editor[plan.Frontend, *entry]
	targets   *cluster.Editor[target, int]
	lists     *cluster.Editor[target, *checks]
	sticky    *cluster.Editor[poolID, int]
	pools     *cluster.Editor[poolID, *members]
	// watched counts what needs an address in the set of that name.
	watched   *cluster.Editor[netip.Addr, int]
	services  int
	endpoints int
	fast      int
}

func (c *content) edit() *editor {
	return &editor{of: c, frontends: c.frontends.Edit(), targets: c.targets.Edit(), lists: c.lists.Edit(),
		sticky: c.sticky.Edit(), pools: c.pools.Edit(), watched: c.addrs[watched].Edit(), services: c.services, endpoints: c.endpoints, fast: c.fast}
}

func (e *editor) content() content {
	addrs := e.of.addrs
	addrs[watched] = e.watched.Map()
	return content{frontends: e.frontends.Map(), addrs: addrs, needs: needs{targets: e.targets.Map(), lists: e.lists.Map(),
		sticky: e.sticky.Map(), pools: e.pools.Map(), services: e.services, endpoints: e.endpoints, fast: e.fast}}
}

// collector builds a content from elements in any order. Entries and addresses are not sorted yet.
type collector struct {
	*editor
	entries map[plan.Frontend]*entry
	addrs   [addrSets]map[netip.Addr]int
}

func newCollector() collector {
	c := collector{editor: (&content{}).edit(), entries: map[plan.Frontend]*entry{}}
	for in := range c.addrs {
		c.addrs[in] = map[netip.Addr]int{}
	}
	return c
}

// entry returns the entry of a frontend, which it adds if there is none.
func (c *collector) entry(f plan.Frontend) *entry {
	e, ok := c.entries[f]
	if !ok {
		e = &entry{}
		c.entries[f] = e
	}
	return e
}

// replace replaces an entry and updates the needs. Either may be nil.
func (e *editor) replace(frontend plan.Frontend, before, after *entry) {
	if after != nil {
		e.frontends.Set(frontend, after)
		e.count(after, 1)
		for t, list := range after.checks {
			e.lists.Set(t, list)
		}
	} else {
		e.frontends.Delete(frontend)
	}
	if before == nil {
		return
	}
	e.count(before, -1)
	for t := range before.checks {
		if _, needed := e.targets.Get(t); !needed {
			e.lists.Delete(t)
		}
	}
}

// checks yields the chains that check the entry's source ranges and bounds, with what they check, which is nil if it was read from the kernel.
func (e *entry) checks(yield func(target, *checks) bool) {
	rare := e.getRare()
	if rare.from.kind != none && !yield(rare.from, rare.sources) {
		return
	}
	if e.goes.fence != 0 {
		yield(target{kind: bounds, id: e.goes.fence}, rare.fence)
	}
}

// count adds n, 1 or -1, to the users of everything that an entry needs.
func (e *editor) count(of *entry, n int) {
	rare := of.getRare()
	e.endpoints += n * (len(of.slots) + len(rare.local))
	for _, counts := range []bool{of.goes.kind != none, rare.from.kind != none, of.unserved, of.limited} {
		if counts {
			e.services += n
		}
	}
	if of.fast {
		e.fast += n
	}
	for _, first := range []target{of.goes, rare.remember, rare.from} {
		for _, t := range first.needs() {
			count(e.targets, t, n)
		}
	}
	if rare.remember.kind != none {
		count(e.sticky, poolID(rare.remember.id), n)
	}
	of.eachPool(func(pool poolID, endpoints []netip.AddrPort) {
		for _, endpoint := range endpoints {
			count(e.watched, endpoint.Addr(), n)
		}
		// All entries of a pool have the same endpoints, unless the plan includes a change in part; use those of the last one.
		now := &members{users: n, endpoints: endpoints}
		if m, ok := e.pools.Get(pool); ok {
			now.users += m.users
			if n < 0 {
				now.endpoints = m.endpoints
			}
		}
		if now.users == 0 {
			e.pools.Delete(pool)
		} else {
			e.pools.Set(pool, now)
		}
	})
}

func count[K cluster.Key[K]](counts *cluster.Editor[K, int], key K, by int) {
	if n, _ := counts.Get(key); n+by > 0 {
		counts.Set(key, n+by)
	} else {
		counts.Delete(key)
	}
}
