// Package changelog logs the Services that a sync changed, one line each, at log level 4.
package changelog

import (
	"net/netip"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// level is the log level at which Services are logged. The line about each sync has level 2.
const level = 4

// Observer is a [proxy.Observer] that logs changed Services after the sync that programs them. It does not log the
// Services of the first sync: all of them are new, and the line about that sync contains their number.
type Observer struct {
	proxy.Ignore
	logger klog.Logger
}

var _ proxy.Observer = (*Observer)(nil)

// New returns an Observer.
func New(logger klog.Logger) *Observer {
	return &Observer{logger: logger.V(level)}
}

// Synced implements [proxy.Observer]. A change that a sync fails to program is logged after the sync that succeeds.
func (o *Observer) Synced(s *proxy.Sync) {
	if !o.logger.Enabled() || s.Before == nil || s.Err() != nil {
		return
	}
	for name, change := range cluster.Changes(s.Before.Services, s.After.Services) {
		switch {
		case !change.Is:
			o.logger.Info("Service removed", "service", name)
		case !change.Was:
			o.logger.Info("Service added", "service", name, "ports", len(change.After.Ports), "endpoints", len(endpoints(change.After)))
		default:
			before, after := endpoints(change.Before), endpoints(change.After)
			o.logger.Info("Service changed", "service", name, "ports", len(change.After.Ports), "endpoints", len(after),
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
