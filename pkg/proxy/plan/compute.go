package plan

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Compute returns the plan for a snapshot. before is an earlier plan or nil; it saves the work for Services that have
// not changed since and never affects the result.
func Compute(snap *cluster.Snapshot, opts *Options, before *Plan) *Plan {
	return Advance(snap, opts, before, nil)
}

// Advance returns a plan on the way from an earlier one to that of a snapshot: within the limit, it includes what has changed since.
// Some Services may wait then; with the same snapshot, one Advance after another includes all of it. Each of these plans is right
// by itself: the Services that wait are as before, or have only some of their new frontends and endpoints. A change of the node that
// affects Services is always included whole.
func Advance(snap *cluster.Snapshot, opts *Options, before *Plan, limit *Limit) *Plan {
	if before == nil || before.options != opts || !sameForServices(before.snapshot.Node, snap.Node) {
		before, limit = &Plan{snapshot: &cluster.Snapshot{}, Node: &Node{}}, nil
	}
	c := &computation{
		before: before, snapshot: snap, opts: opts,
		services:   before.Services.Edit(),
		frontends:  before.Frontends.Edit(),
		contested:  before.Contested.Edit(),
		clusterIPs: before.ClusterIPs.Edit(),
		hairpins:   before.Hairpins.Edit(),
		localPods:  before.LocalPods.Edit(),
		queue:      newQueue(before),
	}
	for _, route := range before.Canary {
		c.frontends.Delete(route.Frontend)
	}
	if limit == nil {
		c.all()
	} else {
		c.limit = *limit
		c.small()
		c.parts()
		c.dropObsolete()
	}
	node := decideNode(snap, opts)
	if node.equal(before.Node) {
		node = before.Node
	}
	canary := c.canaries(node)
	return &Plan{
		Canary:     canary,
		Services:   c.services.Map(),
		Frontends:  c.frontends.Map(),
		Contested:  c.contested.Map(),
		ClusterIPs: c.clusterIPs.Map(),
		Hairpins:   c.hairpins.Map(),
		LocalPods:  c.localPods.Map(),
		Node:       node,
		snapshot:   c.queue.earlier(snap), options: opts,
		waiting: c.queue.waiting, turn: c.queue.turn,
	}
}

// computation updates a plan from one snapshot to the next.
type computation struct {
	before     *Plan
	snapshot   *cluster.Snapshot
	opts       *Options
	services   *cluster.Editor[cluster.ServiceName, *Service]
	frontends  *cluster.Editor[Frontend, *Route]
	contested  *cluster.Editor[Frontend, *Claims]
	clusterIPs *cluster.Editor[netip.Addr, int]
	hairpins   *cluster.Editor[netip.Addr, int]
	localPods  *cluster.Editor[netip.Addr, int]
	limit      Limit
	queue      queue
}

// include includes a version of a Service; nil deletes it.
func (c *computation) include(name cluster.ServiceName, s *cluster.Service) {
	old, _ := c.services.Get(name)
	var now *Service
	if s != nil {
		now = decide(s, c.snapshot.Node, c.opts, old)
	}
	c.replace(name, old, now)
}

// replace replaces the decisions about a Service. Either may be nil.
func (c *computation) replace(name cluster.ServiceName, old, now *Service) {
	if now == nil {
		c.services.Delete(name)
		now = &Service{}
	} else {
		c.services.Set(name, now)
	}
	if old == nil {
		old = &Service{}
	}
	for before, after := range paired(old.Routes, now.Routes) {
		if before == after && old.Created == now.Created { // a Service that was deleted and created again is younger
			continue
		}
		if before != nil {
			c.withdraw(old, before)
		}
		if after != nil {
			c.claim(now, after)
		}
	}
	count(c.clusterIPs, old.ClusterIPs, now.ClusterIPs)
	count(c.hairpins, old.HairpinAddrs(), now.HairpinAddrs())
	count(c.localPods, old.localPods(), now.localPods())
}

// paired yields the routes of the same frontend in two sorted lists; nil is none.
func paired(before, after []*Route) iter.Seq2[*Route, *Route] {
	return func(yield func(before, after *Route) bool) {
		for len(before)+len(after) > 0 {
			order := 0
			switch {
			case len(before) == 0:
				order = 1
			case len(after) == 0:
				order = -1
			case before[0] != after[0]:
				order = before[0].Frontend.Compare(after[0].Frontend)
			}
			var old, now *Route
			if order <= 0 {
				old, before = before[0], before[1:]
			}
			if order >= 0 {
				now, after = after[0], after[1:]
			}
			if !yield(old, now) {
				return
			}
		}
	}
}

// count updates the number of Services that have an address.
func count(counts *cluster.Editor[netip.Addr, int], before, after []netip.Addr) {
	if slices.Equal(before, after) {
		return
	}
	for _, addr := range after {
		n, _ := counts.Get(addr)
		counts.Set(addr, n+1)
	}
	for _, addr := range before {
		if n, _ := counts.Get(addr); n > 1 {
			counts.Set(addr, n-1)
		} else {
			counts.Delete(addr)
		}
	}
}
