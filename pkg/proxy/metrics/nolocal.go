package metrics

import (
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// localKey is the key of noLocalEndpoints.
type localKey struct {
	family   cluster.Family
	external bool
}

// countNoLocal updates the number of Service ports that have endpoints, but none that their Local policy allows on
// this node.
func (m *Metrics) countNoLocal(s *proxy.Sync) {
	for _, change := range s.Changes.Decisions {
		for port := range withoutLocal(change.Before) {
			m.noLocal[port.localKey]--
		}
		for port := range withoutLocal(change.After) {
			m.noLocal[port.localKey]++
		}
	}
	for _, family := range m.config.Families {
		m.noLocalEndpoints.WithLabelValues(family.String(), "internal").Set(float64(m.noLocal[localKey{family, false}]))
		m.noLocalEndpoints.WithLabelValues(family.String(), "external").Set(float64(m.noLocal[localKey{family, true}]))
	}
}

// localPort is a port of a Service that a Local policy leaves without endpoints.
type localPort struct {
	localKey
	port string
}

// withoutLocal returns such ports of one Service, each once regardless of its number of addresses; s may be nil.
func withoutLocal(s *plan.Service) map[localPort]bool {
	var ports map[localPort]bool
	if s == nil {
		return nil
	}
	for _, route := range s.Routes {
		if route.Policy == cluster.PolicyLocal && route.Reason() == plan.NoLocalEndpoints {
			if ports == nil {
				ports = map[localPort]bool{}
			}
			ports[localPort{localKey{route.Frontend.Family(), route.Kind != plan.ClusterIP}, route.Port()}] = true
		}
	}
	return ports
}
