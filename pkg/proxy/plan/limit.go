package plan

import "github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"

// servedPorts returns the ports that are served, in the order of the Service: all of them, unless their elements would be
// more than Options.MaxElements; then those before the first one that does not fit. Without a limit, the author of one
// Service with thousands of ports and thousands of endpoints, objects of some hundred kilobytes, could exhaust the memory of
// every node.
func (d *decision) servedPorts() []cluster.ServicePort {
	s, limit := d.service, d.opts.MaxElements
	if limit == 0 {
		return s.Ports
	}
	if bound(s) <= limit {
		return s.Ports // nearly always
	}
	elements := 0
	for i := range s.Ports {
		if elements += d.elements(&s.Ports[i]); elements > limit {
			return s.Ports[:i]
		}
	}
	return s.Ports
}

// bound returns an upper bound of the number of elements of a Service; s may be nil.
func bound(s *cluster.Service) int {
	if s == nil {
		return 0
	}
	endpoints := 0
	for _, slice := range s.Slices {
		endpoints += len(slice.Endpoints)
	}
	return len(s.Ports) * (len(s.Slices) + addresses(s)*(1+endpoints+len(s.SourceRanges())))
}

// addresses returns how many frontends a port of the Service has at most.
func addresses(s *cluster.Service) int {
	return len(s.ClusterIPs) + len(s.LoadBalancerIPs()) + len(s.ExternalIPs()) + 2 // and a node port of each family
}

// elements returns the number of elements of a port, approximately. Looking it up in a slice counts as one too, and so does
// passing over an endpoint of a family without an address, because there may be very many of each.
func (d *decision) elements(port *cluster.ServicePort) int {
	elements := len(d.service.Slices)
	endpoints := map[cluster.Family]int{}
	for _, slice := range d.service.Slices {
		if _, ok := slice.PortOf(port); ok && len(slice.Endpoints) > 0 {
			endpoints[cluster.FamilyOf(slice.Endpoints[0].Addr)] += len(slice.Endpoints)
		}
	}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		var addrs []address
		if d.opts.Serves(d.node, family) {
			addrs = d.addresses(port, family)
		}
		if len(addrs) == 0 {
			elements += endpoints[family]
		}
		for _, a := range addrs {
			elements += 1 + endpoints[family]
			if a.kind == LoadBalancerIP {
				elements += len(d.service.SourceRanges())
			}
		}
	}
	return elements
}
