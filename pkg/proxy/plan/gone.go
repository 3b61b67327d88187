package plan

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// LosesEndpoints returns the addresses of a family that the EndpointSlices of a Service listed, in any condition, and that those of its
// next version do not list, if the Service has a port of the protocol. Either version may be nil: the connections of a deleted Service
// go on. Slices that both versions have cost nothing.
func LosesEndpoints(before, after *cluster.Service, protocol cluster.Protocol, family cluster.Family) (lost []netip.Addr) {
	if before == nil || after == nil || !slices.ContainsFunc(before.Ports, func(p cluster.ServicePort) bool { return p.Protocol == protocol }) {
		return nil
	}
	kept := map[netip.Addr]bool{}
	for _, slice := range otherThan(after.Slices, before.Slices) {
		for _, endpoint := range slice.Endpoints {
			kept[endpoint.Addr] = true
		}
	}
	for _, slice := range otherThan(before.Slices, after.Slices) {
		for _, endpoint := range slice.Endpoints {
			if cluster.FamilyOf(endpoint.Addr) == family && !kept[endpoint.Addr] {
				lost = append(lost, endpoint.Addr)
			}
		}
	}
	return lost
}

// otherThan returns the slices of a version that another one does not have, or has with other endpoints.
func otherThan(these, those []*cluster.EndpointSlice) (others []*cluster.EndpointSlice) {
	known := make(map[*cluster.EndpointSlice]bool, len(those))
	for _, slice := range those {
		known[slice] = true
	}
	for _, slice := range these {
		if !known[slice] {
			others = append(others, slice)
		}
	}
	return others
}

// Lists reports whether an EndpointSlice of any Service lists an address, in any condition. It looks at all slices, except those of headless
// Services and of other proxies' Services, which are not watched. An address may go before its process ends: an API server that shuts down
// removes its own first.
func (p *Plan) Lists(addr netip.Addr) bool {
	if p.snapshot == nil {
		return false
	}
	for service := range p.snapshot.Services.Values() {
		for _, slice := range service.Slices {
			if slices.ContainsFunc(slice.Endpoints, func(e cluster.Endpoint) bool { return e.Addr == addr }) {
				return true
			}
		}
	}
	return false
}
