package health

import (
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// refusals are what the kernel refuses, by Service.
type refusals map[cluster.ServiceName][]backend.Refusal

// count sets the number of local endpoints to report for the affected Services, and for those with refused ports.
func (s *Services) count(affected map[cluster.ServiceName]bool, sync *proxy.Sync) {
	now := refusals{}
	for _, result := range sync.Results {
		for _, r := range result.Refused {
			now[r.Service] = append(now[r.Service], r)
		}
	}
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
		local := map[cluster.Family]int{}
		for family, planned := range c.want.Load().LocalEndpoints {
			before := 0
			if earlier := c.local.Load(); earlier != nil {
				before = (*earlier)[family]
			}
			local[family] = inForce(service, family, now[name], before, planned)
		}
		c.local.Store(&local)
	}
}

// inForce returns how many local endpoints to report for a Service with refused ports, which had reported a number before:
// none if it has no rules at all, and if all its ports are refused none that is not served any more or not yet. A Service with
// only some ports refused still counts: without the node, its other ports would fail too.
func inForce(service *plan.Service, family cluster.Family, refusals []backend.Refusal, before, planned int) int {
	refused, kept := map[string]bool{}, false
	for _, r := range refusals {
		if r.Family == family {
			refused[r.Port], kept = true, kept || r.Kept
		}
	}
	ports := map[plan.Port]bool{}
	for _, route := range service.Routes {
		if route.Frontend.Family() == family {
			ports[route.Of()] = true
		}
	}
	switch {
	case len(refused) == 0, len(refused) < len(ports):
		return planned
	case kept:
		return min(before, planned)
	default:
		return 0
	}
}
