package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// RoutesOf returns the served routes of a port, sorted by frontend.
func (p *Plan) RoutesOf(port Port) (routes []*Route) {
	service, ok := p.Services.Get(port.Service)
	if !ok {
		return nil
	}
	for _, route := range service.Routes {
		if served, _ := p.Frontends.Get(route.Frontend); served == route && route.Of() == port {
			routes = append(routes, route)
		}
	}
	return routes
}

// Hold returns the plan with other routes for each of the given ports, or none: those of an earlier plan, which stay in force because
// the kernel refuses the port's present ones. A frontend that another port has now is not held. If two ports could hold a frontend, the
// first in their order does. A Service without any route left in a family loses its addresses there.
func (p *Plan) Hold(ports map[Port][]*Route) *Plan {
	if len(ports) == 0 {
		return p
	}
	held, frontends := *p, p.Frontends.Edit()
	for port := range ports {
		for _, route := range p.RoutesOf(port) {
			frontends.Delete(route.Frontend)
		}
	}
	for _, port := range slices.SortedFunc(maps.Keys(ports), Port.Compare) {
		for _, route := range ports[port] {
			if _, taken := frontends.Get(route.Frontend); !taken {
				frontends.Set(route.Frontend, route)
			}
		}
	}
	held.Frontends = frontends.Map()
	clusterIPs, hairpins := p.ClusterIPs.Edit(), p.Hairpins.Edit()
	for of := range withoutRoutes(p, ports) {
		service, _ := p.Services.Get(of.Service)
		count(clusterIPs, inFamily(service.ClusterIPs, of.Family), nil)
		count(hairpins, inFamily(service.HairpinAddrs(), of.Family), nil)
	}
	held.ClusterIPs, held.Hairpins = clusterIPs.Map(), hairpins.Map()
	return &held
}

// withoutRoutes returns the Services, each as a Port with only its family, that have no route left in it.
func withoutRoutes(p *Plan, ports map[Port][]*Route) map[Port]bool {
	found := map[Port]bool{}
	for port := range ports {
		service, ok := p.Services.Get(port.Service)
		found[Port{Service: port.Service, Family: port.Family}] = ok && !slices.ContainsFunc(service.Routes, func(r *Route) bool {
			routes, held := ports[r.Of()]
			return r.Frontend.Family() == port.Family && (!held || len(routes) > 0)
		})
	}
	for of, without := range found {
		if !without {
			delete(found, of)
		}
	}
	return found
}

// inFamily returns the addresses of one family.
func inFamily(addrs []netip.Addr, family cluster.Family) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return cluster.FamilyOf(a) != family })
}
