package plan

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Compute returns the plan for a snapshot. before is an earlier plan or nil; it saves the work for Services that have
// not changed since and never affects the result.
func Compute(snap *cluster.Snapshot, opts *Options, before *Plan) *Plan {
	if before == nil || before.options != opts || !opts.sameForServices(before.snapshot.Node, snap.Node) {
		before = &Plan{snapshot: &cluster.Snapshot{}, Node: &Node{}}
	}
	c := &computation{
		services:   before.Services.Edit(),
		frontends:  before.Frontends.Edit(),
		contested:  before.Contested.Edit(),
		clusterIPs: before.ClusterIPs.Edit(),
		hairpins:   before.Hairpins.Edit(),
	}
	for name, change := range cluster.Changes(before.snapshot.Services, snap.Services) {
		var old, now *Service
		if change.Was {
			old, _ = before.Services.Get(name)
		}
		if change.Is {
			now = decide(change.After, snap.Node, opts, old)
		}
		c.replace(name, old, now)
	}
	node := decideNode(snap, opts)
	if node.equal(before.Node) {
		node = before.Node
	}
	return &Plan{
		Services:   c.services.Map(),
		Frontends:  c.frontends.Map(),
		Contested:  c.contested.Map(),
		ClusterIPs: c.clusterIPs.Map(),
		Hairpins:   c.hairpins.Map(),
		Node:       node,
		snapshot:   snap, options: opts,
	}
}

// computation updates a plan from one snapshot to the next.
type computation struct {
	services   *cluster.Editor[cluster.ServiceName, *Service]
	frontends  *cluster.Editor[Frontend, *Route]
	contested  *cluster.Editor[Frontend, *Claims]
	clusterIPs *cluster.Editor[netip.Addr, int]
	hairpins   *cluster.Editor[netip.Addr, int]
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
	// A Service that was deleted and created again is younger now, so all its claims are made again.
	kept := func(routes []*Route, route *Route) bool {
		return old.Created == now.Created && find(routes, route.Frontend) == route
	}
	for _, route := range old.Routes {
		if !kept(now.Routes, route) {
			c.withdraw(old, route)
		}
	}
	for _, route := range now.Routes {
		if !kept(old.Routes, route) {
			c.claim(now, route)
		}
	}
	count(c.clusterIPs, old.ClusterIPs, now.ClusterIPs)
	count(c.hairpins, old.HairpinAddrs(), now.HairpinAddrs())
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
