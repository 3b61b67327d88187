package nftables

import (
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// books count what the entries of a ruleset need, so that it is there for as long as one needs it.
type books struct {
	// targets are the chains that verdicts go to, and those that these go on to.
	targets cluster.Map[target, int]
	// lists are what the targets of source ranges let in. They are not read from the kernel.
	lists cluster.Map[target, *sources]
	// timeouts are those of the affinity maps, pools those whose clients are remembered.
	timeouts cluster.Map[timeout, int]
	pools    cluster.Map[poolID, *members]
}

// openBooks are books that are being kept.
type openBooks struct {
	targets  *cluster.Editor[target, int]
	lists    *cluster.Editor[target, *sources]
	timeouts *cluster.Editor[timeout, int]
	pools    *cluster.Editor[poolID, *members]
}

func (b *books) edit() *openBooks {
	return &openBooks{targets: b.targets.Edit(), lists: b.lists.Edit(), timeouts: b.timeouts.Edit(), pools: b.pools.Edit()}
}

func (b *openBooks) close() books {
	return books{targets: b.targets.Map(), lists: b.lists.Map(), timeouts: b.timeouts.Map(), pools: b.pools.Map()}
}

// replace puts what one entry needs in the place of what another needed. Either may be nil.
func (b *openBooks) replace(before, after *entry) {
	if after != nil {
		b.count(after, 1)
	}
	if before != nil {
		b.count(before, -1)
	}
}

// count adds n, 1 or -1, to the users of everything that an entry needs.
func (b *openBooks) count(e *entry, n int) {
	for _, first := range []target{e.goes, e.remember, e.from} {
		for _, t := range first.needs() {
			count(b.targets, t, n)
		}
	}
	if _, needed := b.targets.Get(e.from); needed {
		b.lists.Set(e.from, e.sources)
	} else {
		b.lists.Delete(e.from)
	}
	if e.goes.seconds > 0 {
		count(b.timeouts, e.goes.seconds, n)
	}
	e.eachPool(func(pool poolID, endpoints []netip.AddrPort) {
		// All entries of a pool agree on its endpoints, so those of the one that came last are right.
		now := &members{users: n, seconds: e.goes.seconds, endpoints: endpoints}
		if m, ok := b.pools.Get(pool); ok {
			now.users += m.users
			if n < 0 {
				now.seconds, now.endpoints = m.seconds, m.endpoints
			}
		}
		if now.users == 0 {
			b.pools.Delete(pool)
		} else {
			b.pools.Set(pool, now)
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

// equal tells whether the same things are there, however many need them.
func (b *books) equal(o *books) bool {
	for _, change := range cluster.Changes(b.pools, o.pools) {
		if !change.Was || !change.Is || !sameSet(change.Before.endpoints, change.After.endpoints) {
			return false
		}
	}
	return sameKeys(b.targets, o.targets, func(target) bool { return true }) &&
		sameKeys(b.timeouts, o.timeouts, func(timeout) bool { return true })
}

func sameKeys[K cluster.Key[K]](a, b cluster.Map[K, int], counts func(K) bool) bool {
	for key, change := range cluster.Changes(a, b) {
		if counts(key) && change.Was != change.Is {
			return false
		}
	}
	return true
}
