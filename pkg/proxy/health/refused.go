package health

import (
	"maps"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// refusals holds, by Service and family, whether each refused port keeps its earlier rules.
type refusals map[cluster.ServiceName]map[cluster.Family]map[string]bool

// refusalsOf returns the refusals in the results of a sync.
func refusalsOf(results []backend.Result) refusals {
	all := refusals{}
	for _, result := range results {
		for _, r := range result.Refused {
			if all[r.Service] == nil {
				all[r.Service] = map[cluster.Family]map[string]bool{}
			}
			if all[r.Service][result.Family] == nil {
				all[r.Service][result.Family] = map[string]bool{}
			}
			all[r.Service][result.Family][r.Port] = r.Kept
		}
	}
	return all
}

// count sets the number of local endpoints to report for the affected Services, and for those with refused ports.
func (s *Services) count(affected map[cluster.ServiceName]bool, sync *proxy.Sync) {
	now := refusalsOf(sync.Results)
	for _, refused := range []refusals{s.refused, now} {
		for name := range refused {
			affected[name] = true
		}
	}
	s.refused = now
	for name := range affected {
		c := s.checks[name]
		if c == nil {
			continue
		}
		service, _ := sync.Plan.Services.Get(name)
		local := maps.Clone(c.want.Load().LocalEndpoints)
		for family, refused := range now[name] {
			before := 0
			if earlier := c.local.Load(); earlier != nil {
				before = (*earlier)[family]
			}
			local[family] = inForce(service, family, refused, before, local[family])
		}
		c.local.Store(&local)
	}
}

// inForce returns how many local endpoints to report for a Service with refused ports, which had reported a number before:
// none if it has no rules at all, and if all its ports are refused none that is not served any more or not yet. A Service with
// only some ports refused still counts: without the node, its other ports would fail too.
func inForce(service *plan.Service, family cluster.Family, refused map[string]bool, before, planned int) int {
	kept := 0
	for _, keeps := range refused {
		if keeps {
			kept++
		}
	}
	ports := map[plan.Port]bool{}
	for _, route := range service.Routes {
		if route.Frontend.Family() == family {
			ports[route.Of()] = true
		}
	}
	switch {
	case len(refused) < len(ports):
		return planned
	case kept > 0:
		return min(before, planned)
	default:
		return 0
	}
}
