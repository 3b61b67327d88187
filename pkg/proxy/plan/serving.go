package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Serving lists the endpoints that still serve one UDP port of a Service in one family. UDP clients do not notice
// that an endpoint is gone, so the conntrack entries of their flows must be deleted to send them elsewhere. Unlike a
// Pool it includes endpoints that drain, and those for other zones and nodes: readiness and hints say where new flows
// should go, and forbid no existing one.
type Serving struct {
	// Port is the name of the Service's port.
	Port   string
	Family cluster.Family
	// Endpoints are distinct and sorted.
	Endpoints []netip.AddrPort
	// Here are those of them on this node, to which policy Local restricts flows. It is empty if the Service has no such policy.
	Here []netip.AddrPort
}

// compare sorts by port and family.
func (s Serving) compare(o Serving) int {
	return cmp.Or(strings.Compare(s.Port, o.Port), cmp.Compare(s.Family, o.Family))
}

// under returns the endpoints of flows under a traffic policy; s may be nil.
func (s *Serving) under(policy cluster.Policy) []netip.AddrPort {
	switch {
	case s == nil:
		return nil
	case policy == cluster.PolicyLocal:
		return s.Here
	}
	return s.Endpoints
}

// Keeps reports whether a client's UDP flow through a route may go on to an endpoint: it still serves, and neither source
// ranges nor a traffic policy forbid this client a new flow to it.
func (p *Plan) Keeps(route *Route, client netip.Addr, endpoint netip.AddrPort) bool {
	service, _ := p.Services.Get(route.Service)
	serving := service.ServingOn(route.Port(), route.Frontend.Family())
	_, found := slices.BinarySearchFunc(serving.under(route.policyFor(p.mayBeInside(client))), endpoint, netip.AddrPort.Compare)
	return found && route.admits(client)
}

// mayBeInside reports whether a flow's client may be this node or one of its pods. A flow does not say on which interface it
// arrived: if that distinguishes pods, any client may be one.
func (p *Plan) mayBeInside(client netip.Addr) bool {
	return p.Node.Has(client) || p.Node.LocalTraffic.Interface != "" || p.Node.LocalTraffic.Is(client, "")
}

// policyFor returns the policy for a client. Policy Local of an external address does not apply inside this node: see ShortCut.
func (r *Route) policyFor(inside bool) cluster.Policy {
	if inside && r.Kind != ClusterIP {
		return cluster.PolicyCluster
	}
	return r.Policy
}

// EndsFlows reports whether a UDP flow that a version of a Service keeps may end with the next one, in a family: an endpoint
// no longer serves, or a client is restricted. Either may be nil. It does not look at frontends that the next version lacks.
func EndsFlows(before, after *Service, family cluster.Family) bool {
	if before == nil || after == nil || len(before.Serving()) == 0 {
		return false
	}
	return slices.ContainsFunc(before.Routes, func(was *Route) bool {
		if was.Frontend.Protocol != cluster.UDP || was.Frontend.Family() != family {
			return false
		}
		is := find(after.Routes, was.Frontend)
		if is == nil {
			return false
		}
		had, has := before.ServingOn(was.Port(), family), after.ServingOn(is.Port(), family)
		keeps := func(inside bool) bool {
			return subset(had.under(was.policyFor(inside)), has.under(is.policyFor(inside)))
		}
		return !keeps(false) || !keeps(true) || narrower(was.SourceRanges, is.SourceRanges)
	})
}

// subset reports whether the sorted list whole contains all elements of part.
func subset(part, whole []netip.AddrPort) bool {
	if len(part) == len(whole) && (len(part) == 0 || &part[0] == &whole[0]) {
		return true
	}
	for _, item := range part {
		for len(whole) > 0 && whole[0].Compare(item) < 0 {
			whole = whole[1:]
		}
		if len(whole) == 0 || whole[0] != item {
			return false
		}
	}
	return true
}

// ServingOn returns the endpoints that serve a UDP port in a family; nil if the Service has no such port. s may be
// nil.
func (s *Service) ServingOn(port string, family cluster.Family) *Serving {
	if s == nil {
		return nil
	}
	serving := s.Serving()
	at, found := slices.BinarySearchFunc(serving, Serving{Port: port, Family: family}, Serving.compare)
	if !found {
		return nil
	}
	return &serving[at]
}

// serving selects the endpoints that serve a port from the candidates in a family.
func (d *decision) serving(port string, family cluster.Family, all []candidate, everywhere, here *Pool) Serving {
	keeps := cluster.Ready | cluster.Serving
	if d.out.KeepsTerminating {
		keeps |= cluster.Terminating
	}
	serves := func(c *candidate) bool { return c.Conditions&keeps != 0 }
	before := d.before.ServingOn(port, family)
	serving := Serving{Port: port, Family: family,
		Endpoints: shared(addrsOf(all, serves), everywhere, before.under(cluster.PolicyCluster))}
	if here != nil {
		local := addrsOf(all, func(c *candidate) bool { return serves(c) && c.Conditions.Has(cluster.Local) })
		serving.Here = shared(local, here, before.under(cluster.PolicyLocal))
	}
	return serving
}

// shared returns an equal list that is in memory already, if there is one: a pool's, since usually all serving endpoints are
// ready, or the one of the decision before.
func shared(endpoints []netip.AddrPort, pool *Pool, before []netip.AddrPort) []netip.AddrPort {
	switch {
	case slices.Equal(endpoints, pool.Endpoints):
		return pool.Endpoints
	case slices.Equal(endpoints, before):
		return before
	}
	return endpoints
}
