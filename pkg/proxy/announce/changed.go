package announce

import (
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// level is the log level at which Services are logged. The line about each sync has level 2.
const level = 4

// changed logs the Services that a sync changed, one line each; not those of the first sync: all of them are new, and the line about that
// sync contains their number. A change that a sync fails to program is logged after the sync that succeeds.
func (r *Reporter) changed(s *proxy.Sync) {
	logger := r.config.Logger.V(level)
	if !logger.Enabled() || s.Applied == nil || s.Applied.First() {
		return
	}
	for name, change := range s.Applied.Services {
		switch {
		case !change.Is:
			logger.Info("Service removed", "service", name)
		case !change.Was:
			logger.Info("Service added", "service", name, "ports", len(change.After.Ports), "endpoints", len(endpoints(change.After)))
		default:
			before, after := endpoints(change.Before), endpoints(change.After)
			logger.Info("Service changed", "service", name, "ports", len(change.After.Ports), "endpoints", len(after),
				"endpointsAdded", missing(after, before), "endpointsRemoved", missing(before, after))
		}
	}
}

// endpoints returns the addresses of a Service's endpoints, in all slices and conditions.
func endpoints(s *cluster.Service) map[netip.Addr]struct{} {
	all := map[netip.Addr]struct{}{}
	for _, slice := range s.Slices {
		for _, e := range slice.Endpoints {
			all[e.Addr] = struct{}{}
		}
	}
	return all
}

// missing returns how many of the addresses others lacks.
func missing(addresses, others map[netip.Addr]struct{}) (count int) {
	for address := range addresses {
		if _, ok := others[address]; !ok {
			count++
		}
	}
	return count
}
