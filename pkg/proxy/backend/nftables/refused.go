package nftables

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// units writes n units, in one transaction if the kernel accepts it. owners returns the ports that need a unit.
func (p *patch) units(n int, write func(first, end int) error, owners func(unit int) []plan.Port) error {
	err := write(0, n)
	if err == nil {
		return nil
	}
	return p.isolate(err, n, write, owners)
}

// isolate finds the ports for which the kernel refused n units, by its error or by writing parts of them.
func (p *patch) isolate(refused error, n int, write func(first, end int) error, owners func(unit int) []plan.Port) error {
	if !nft.Refused(refused) {
		return refused
	}
	if named, ok := errors.AsType[*nft.BatchError](refused); n == 0 || ok && named.Removes() {
		return backend.Refused(refused) // not because of what a Service needs
	}
	if ports := p.blamed(refused); len(ports) > 0 {
		return backend.Refused(refused, ports...)
	}
	unit, err := backend.FirstRefused(n, write, nft.Refused)
	switch {
	case unit < 0 && nft.Refused(err):
		return backend.Refused(err)
	case unit < 0:
		return err
	case unit == n:
		return nil
	}
	if ports := p.blamed(err); len(ports) > 0 {
		return backend.Refused(err, ports...)
	}
	return backend.Refused(err, owners(unit)...)
}

// blamed returns the ports of the element or chain that the kernel names.
func (p *patch) blamed(err error) []plan.Port {
	named, ok := errors.AsType[*nft.BatchError](err)
	if !ok {
		return nil
	}
	var e element
	if s := p.result.holds.schema.named(named.Set); s != nil {
		if s.nodePort {
			e.frontend.Addr = s.any
		}
		if decodeAll(s.key, named.Key, &e) {
			return p.owners(s, &e)
		}
	}
	if t, err := parseTarget(named.Object); err == nil {
		return p.needing(t)
	}
	return nil
}

// owners returns the ports that an element is for.
func (p *patch) owners(s *set, e *element) []plan.Port {
	planned := p.result.holds.from
	switch m := s.members.(type) {
	case nil:
		if route, ok := planned.Frontends.Get(e.frontend); ok {
			return []plan.Port{route.Of()}
		}
		return nil
	case poolMembers:
		return p.ports(func(r *plan.Route, _ *entry) bool { return r.Affinity != nil && poolOf(r) == e.pool()&^localBit })
	case addrMembers:
		return p.ports(func(r *plan.Route, _ *entry) bool {
			service, ok := planned.Services.Get(r.Service)
			return ok && slices.Contains(m.in.of(service), e.frontend.Addr)
		})
	}
	return nil
}

// of returns the addresses of a Service in a set; there are none in the set of node addresses.
func (in addrSet) of(s *plan.Service) []netip.Addr {
	switch in {
	case clusterIPs:
		return s.ClusterIPs
	case hairpins:
		return s.HairpinAddrs()
	default:
		return nil
	}
}

// needing returns the ports whose frontends lead to a chain.
func (p *patch) needing(t target) []plan.Port {
	return p.ports(func(_ *plan.Route, e *entry) bool {
		rare := e.getRare()
		return slices.Contains(e.goes.needs(), t) || slices.Contains(rare.from.needs(), t) || slices.Contains(rare.remember.needs(), t)
	})
}

// remembering returns the port of an affinity map.
func (p *patch) remembering(port poolID) []plan.Port {
	return p.ports(func(_ *plan.Route, e *entry) bool { return poolID(e.getRare().remember.id) == port })
}

// ports returns the ports with a frontend that matches, each once.
func (p *patch) ports(match func(*plan.Route, *entry) bool) []plan.Port {
	found := map[plan.Port]bool{}
	for frontend, e := range p.after.frontends.All() {
		if route, ok := p.result.holds.from.Frontends.Get(frontend); ok && match(route, e) {
			found[route.Of()] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}
