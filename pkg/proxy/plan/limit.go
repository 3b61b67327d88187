package plan

import (
	"cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// servedPorts returns the ports that are served, in the order of the Service: all of them, unless their elements would be
// more than Options.Limits allows; then those before the first one that does not fit. Without a limit, the author of one
// Service with thousands of ports and thousands of endpoints, objects of some hundred kilobytes, could exhaust the memory of
// every node.
func (d *decision) servedPorts() []cluster.ServicePort {
	s, limits := d.service, d.opts.Limits
	most := 1
	if limits.EndpointsShared {
		most = maxShared
	}
	if limits == (Limits{}) || most*bound(s) <= min(limits.Elements, cmp.Or(limits.Endpoints, limits.Elements), cmp.Or(limits.SourceRanges, limits.Elements)) {
		return s.Ports // nearly always
	}
	if limits.SourceRanges > 0 && len(s.SourceRanges()) > limits.SourceRanges {
		return nil
	}
	elements := 0
	for i := range s.Ports {
		n, fits := d.elements(&s.Ports[i])
		if elements += n; elements > limits.Elements || !fits {
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
	return len(s.Ports) * (len(s.Slices) + addresses(s)*(1+entries(s)+len(s.SourceRanges())))
}

// addresses returns how many frontends a port of the Service has at most.
func addresses(s *cluster.Service) int {
	return len(s.ClusterIPs) + len(s.LoadBalancerIPs()) + len(s.ExternalIPs()) + 2 // and a node port of each family
}

// elements returns the number of elements of a port, approximately. Looking it up in a slice counts as one too, and so does
// passing over an endpoint of a family without an address, because there may be very many of each. fits is false if the port has too
// many endpoints in a family.
func (d *decision) elements(port *cluster.ServicePort) (n int, fits bool) {
	elements := len(d.service.Slices)
	endpoints, shared := map[cluster.Family]int{}, map[cluster.Family]int{}
	for _, slice := range d.service.Slices {
		if _, ok := slice.PortOf(port); ok && len(slice.Endpoints) > 0 {
			family := cluster.FamilyOf(slice.Endpoints[0].Addr)
			endpoints[family] += len(slice.Endpoints)
			shared[family] += d.shared(slice)
		}
	}
	limits := d.opts.Limits
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		var addrs []address
		if d.opts.Serves(d.node, family) {
			addrs = d.addresses(port, family)
		}
		elements += len(addrs)
		if limits.EndpointsShared {
			elements += shared[family]
		} else {
			elements += max(1, len(addrs)) * endpoints[family]
		}
		for _, a := range addrs {
			if a.kind == LoadBalancerIP {
				elements += len(d.service.SourceRanges())
			}
		}
		if len(addrs) > 0 && limits.Endpoints > 0 && endpoints[family] > limits.Endpoints {
			return elements, false
		}
	}
	return elements, true
}

// maxShared is how much an endpoint counts at most where the frontends of a port share its rules.
const maxShared = 5

// shared returns how much the endpoints of a slice count where the frontends of a port share their rules, by the number of rules and chains
// in iptables mode: an endpoint that may be on this node has a chain of its own, and session affinity needs another rule.
func (d *decision) shared(slice *cluster.EndpointSlice) (n int) {
	each := 1
	if d.service.Affinity > 0 {
		each = 2
	}
	for i := range slice.Endpoints {
		if n += each; d.mayBeHere(&slice.Endpoints[i]) {
			n += maxShared - 2
		}
	}
	return n
}
