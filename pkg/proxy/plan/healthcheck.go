package plan

import (
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// HealthCheck is the answer to a load balancer's check whether this node can serve a Service.
type HealthCheck struct {
	// Port is the TCP port of this node that answers.
	Port uint16
	// LocalEndpoints is the number of distinct addresses of ready endpoints on this node whose weight is not 0, for each family of the Service that
	// is served. They are separate because a load balancer checks the family whose traffic it sends.
	LocalEndpoints map[cluster.Family]int
}

// In reports whether the Service answers health checks in a family. h may be nil.
func (h *HealthCheck) In(family cluster.Family) bool {
	if h == nil {
		return false
	}
	_, ok := h.LocalEndpoints[family]
	return ok
}

// atMost returns a health check with the smaller numbers of two; h if there is no other, and nil without h.
func (h *HealthCheck) atMost(o *HealthCheck) *HealthCheck {
	if h == nil || o == nil {
		return h
	}
	least := &HealthCheck{Port: h.Port, LocalEndpoints: map[cluster.Family]int{}}
	for family, n := range h.LocalEndpoints {
		least.LocalEndpoints[family] = min(n, o.LocalEndpoints[family])
	}
	return least
}

// healthCheck returns the health check of the Service; nil if it has none.
func (d *decision) healthCheck() *HealthCheck {
	s := d.service
	if s.HealthCheckNodePort == 0 {
		return nil
	}
	h := &HealthCheck{Port: s.HealthCheckNodePort, LocalEndpoints: map[cluster.Family]int{}}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if s.InFamily(family) && d.opts.Serves(d.node, family) {
			h.LocalEndpoints[family] = d.readyLocalAddrs(family)
		}
	}
	return h
}

// readyLocalAddrs counts the distinct addresses of the Service's ready endpoints on this node that take new connections. A pod without any of the Service's
// named ports is in a slice without ports, and gets no traffic.
func (d *decision) readyLocalAddrs(family cluster.Family) int {
	var addrs []netip.Addr
	for _, slice := range d.service.Slices {
		if len(slice.Ports) == 0 {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Conditions.Has(cluster.Ready|cluster.Local) && cluster.FamilyOf(e.Addr) == family && d.opts.weight(e) > 0 {
				addrs = append(addrs, e.Addr)
			}
		}
	}
	return len(sortedSet(addrs))
}
