package plan

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Serving is which endpoints still answer for one UDP port of a Service in one family. Clients of UDP do not
// notice that an endpoint is gone, so what the kernel remembers of their flows has to be taken away for them to be
// sent elsewhere. A flow may stay with any of these, whatever policies and hints say of new ones: unlike the pools,
// this is not about where connections go, and a change of policy cuts no flow.
type Serving struct {
	// Port is the name of the Service's port.
	Port   string
	Family cluster.Family
	// Endpoints are distinct and sorted.
	Endpoints []netip.AddrPort
}

// has tells whether an endpoint is among them; s may be nil.
func (s *Serving) has(endpoint netip.AddrPort) bool {
	if s == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(s.Endpoints, endpoint, netip.AddrPort.Compare)
	return found
}

// Serves tells whether the endpoint still answers for a UDP route.
func (p *Plan) Serves(route *Route, endpoint netip.AddrPort) bool {
	service, _ := p.Services.Get(route.Service)
	return service.ServingOn(route.Port, route.Frontend.Family()).has(endpoint)
}

// ServingOn finds what serves a UDP port in a family; nil if the Service has no such port. s may be nil.
func (s *Service) ServingOn(port string, family cluster.Family) *Serving {
	if s == nil {
		return nil
	}
	at := slices.IndexFunc(s.Serving, func(s Serving) bool { return s.Port == port && s.Family == family })
	if at < 0 {
		return nil
	}
	return &s.Serving[at]
}

// Meets visits the frontends that a packet to an address and port may meet; the first one that is served counts.
func (p *Plan) Meets(to netip.AddrPort, protocol cluster.Protocol) iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
		frontend := Frontend{Addr: to.Addr(), Protocol: protocol, Port: to.Port()}
		if !yield(frontend) {
			return
		}
		if _, served := slices.BinarySearchFunc(p.Node.NodePortAddrs, frontend.Addr, netip.Addr.Compare); served {
			frontend.Addr = anyAddr(frontend.Family())
			yield(frontend)
		}
	}
}

// RouteTo finds the route that a packet to an address and port meets; nil if it meets none.
func (p *Plan) RouteTo(to netip.AddrPort, protocol cluster.Protocol) *Route {
	for frontend := range p.Meets(to, protocol) {
		if route, ok := p.Frontends.Get(frontend); ok {
			return route
		}
	}
	return nil
}

// serving is what serves a port, of all candidates in a family. Lists that are equal share their memory: mostly
// everything that serves is ready.
func (d *decision) serving(port string, family cluster.Family, all []candidate, pool *Pool) Serving {
	endpoints := addrsOf(all, func(c *candidate) bool {
		return c.Conditions.Has(cluster.Ready) || c.Conditions.Has(cluster.Serving)
	})
	if slices.Equal(endpoints, pool.Endpoints) {
		endpoints = pool.Endpoints
	} else if before := d.before.ServingOn(port, family); before != nil && slices.Equal(endpoints, before.Endpoints) {
		endpoints = before.Endpoints
	}
	return Serving{Port: port, Family: family, Endpoints: endpoints}
}
