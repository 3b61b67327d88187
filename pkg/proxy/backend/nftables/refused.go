package nftables

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// tooLarge reports whether less may be written at a time.
func tooLarge(err error) bool { return errors.Is(err, unix.EMSGSIZE) }

// refused returns the error of an operation on what frontends need, as that of the patch.
func (p *patch) refused(err error) error {
	if nft.Refused(err) {
		return &backend.RefusedError{Ports: p.ports(), Cause: err}
	}
	return err
}

// ports returns the ports that need what the patch adds.
func (p *patch) ports() []plan.Port {
	frontends, addrs, pools, chains := map[plan.Frontend]bool{}, map[netip.Addr]bool{}, map[poolID]bool{}, map[target]bool{}
	for o := range p.ops() {
		if o.verb == remove {
			continue
		}
		switch o.set.members.(type) {
		case addrMembers:
			addrs[o.frontend.Addr] = true
		case poolMembers:
			pools[o.pool()&^localBit] = true
		default:
			frontends[o.frontend] = true
		}
	}
	for _, port := range p.addSticky {
		pools[port] = true
	}
	for _, t := range p.addChains { // those to rewrite are as they were
		chains[t] = true
	}
	found, planned := map[plan.Port]bool{}, p.result.holds.from
	for frontend, e := range p.after.frontends.All() {
		route, ok := planned.Frontends.Get(frontend)
		if !ok {
			continue
		}
		rare := e.getRare()
		needs := frontends[frontend] || rare.remember.kind != none && pools[poolID(rare.remember.id)]
		for _, t := range slices.Concat(e.goes.needs(), rare.from.needs(), rare.remember.needs()) {
			needs = needs || chains[t]
		}
		e.eachPool(func(_ poolID, endpoints []netip.AddrPort) {
			for _, endpoint := range endpoints {
				needs = needs || addrs[endpoint.Addr()]
			}
		})
		if service, ok := planned.Services.Get(route.Service); ok {
			for _, addr := range slices.Concat(service.ClusterIPs, service.HairpinAddrs()) {
				needs = needs || addrs[addr]
			}
		}
		if needs {
			found[route.Of()] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}
