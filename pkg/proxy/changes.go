package proxy

import (
	"iter"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Changes are the differences between two plans, in the order of keys. They are found while they are visited, at a cost of less than a
// microsecond if little has changed, and need no memory.
type Changes struct {
	// Before is the earlier plan; an empty one if there is none, and then everything is new.
	Before *plan.Plan
	// Services are the objects that the plans implement, Decisions what the plans decide about each.
	Services  iter.Seq2[cluster.ServiceName, cluster.Change[*cluster.Service]]
	Decisions iter.Seq2[cluster.ServiceName, cluster.Change[*plan.Service]]
	Frontends iter.Seq2[plan.Frontend, cluster.Change[*plan.Route]]
	Contested iter.Seq2[plan.Frontend, cluster.Change[*plan.Claims]]
}

// First reports whether there is no earlier plan.
func (c *Changes) First() bool { return c.Before.Snapshot() == nil }

// changesOf returns the differences between two plans; before may be nil.
func changesOf(before, after *plan.Plan) Changes {
	if before == nil {
		before = &plan.Plan{}
	}
	return Changes{
		Before:    before,
		Services:  cluster.Changes(servicesOf(before), servicesOf(after)),
		Decisions: cluster.Changes(before.Services, after.Services),
		Frontends: cluster.Changes(before.Frontends, after.Frontends),
		Contested: cluster.Changes(before.Contested, after.Contested),
	}
}

// Affected returns the Services whose problems ([plan.Plan.Problems]) may differ, some of them twice.
func (c *Changes) Affected() iter.Seq[cluster.ServiceName] {
	return func(yield func(cluster.ServiceName) bool) {
		for name := range c.Decisions {
			if !yield(name) {
				return
			}
		}
		for _, change := range c.Contested {
			var claims [2]cluster.Map[plan.Claim, *plan.Route]
			for i, of := range []*plan.Claims{change.Before, change.After} {
				if of == nil {
					continue
				}
				if claims[i] = of.Routes; !yield(of.Served().Service) {
					return
				}
			}
			for claim := range cluster.Changes(claims[0], claims[1]) {
				if !yield(claim.Service) {
					return
				}
			}
		}
	}
}

// servicesOf returns the Services that a plan implements. An empty plan has no snapshot.
func servicesOf(p *plan.Plan) cluster.Map[cluster.ServiceName, *cluster.Service] {
	if snapshot := p.Snapshot(); snapshot != nil {
		return snapshot.Services
	}
	return cluster.Map[cluster.ServiceName, *cluster.Service]{}
}

// History finds the changes of each sync. The zero value has not seen a sync.
type History struct {
	last    *plan.Plan
	inForce map[cluster.Family]*plan.Plan
	// applied is the last plan that was programmed in all families, shown the last one that was in any.
	applied, shown *plan.Plan
}

// Add sets the changes of the next sync, and returns it.
func (h *History) Add(s *Sync) *Sync {
	s.Changes = changesOf(h.last, s.Plan)
	s.Programmed = make(map[cluster.Family]Changes, len(s.Results))
	if h.inForce == nil {
		h.inForce = map[cluster.Family]*plan.Plan{}
	}
	for _, result := range s.Results {
		if result.Err != nil {
			continue
		}
		s.Programmed[result.Family] = changesOf(h.inForce[result.Family], s.Plan)
		h.inForce[result.Family] = s.Plan
	}
	if s.Err() == nil {
		s.Applied = new(changesOf(h.applied, s.Plan))
		h.applied = s.Plan
	}
	if len(s.Programmed) > 0 {
		s.Shown = new(changesOf(h.shown, s.Plan))
		h.shown = s.Plan
	}
	h.last = s.Plan
	return s
}
