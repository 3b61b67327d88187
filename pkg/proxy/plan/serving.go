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
// Pool it is not restricted by policies and hints: these apply to new flows only, and a change of policy interrupts
// no existing flow.
type Serving struct {
	// Port is the name of the Service's port.
	Port   string
	Family cluster.Family
	// Endpoints are distinct and sorted.
	Endpoints []netip.AddrPort
}

// compare sorts by port and family.
func (s Serving) compare(o Serving) int {
	return cmp.Or(strings.Compare(s.Port, o.Port), cmp.Compare(s.Family, o.Family))
}

// has reports whether the list contains an endpoint; s may be nil.
func (s *Serving) has(endpoint netip.AddrPort) bool {
	if s == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(s.Endpoints, endpoint, netip.AddrPort.Compare)
	return found
}

// Serves reports whether an endpoint still serves a UDP route.
func (p *Plan) Serves(route *Route, endpoint netip.AddrPort) bool {
	service, _ := p.Services.Get(route.Service)
	return service.ServingOn(route.Port(), route.Frontend.Family()).has(endpoint)
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

// serving selects the endpoints that serve a port from the candidates in a family. It shares memory with the pool or
// with the decision before, since usually all serving endpoints are ready.
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
