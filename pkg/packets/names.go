package packets

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// frontend is an address of a Service's port. The address of a node port is unspecified.
type frontend struct {
	protocol string
	at       netip.AddrPort
}

// name identifies the Service port that has a frontend.
type name struct {
	service, port string
	address       v1alpha1.Address
	// sourceRanges are the CIDRs of the sources that are admitted; none admits all.
	sourceRanges []string
	// limits are the bounds of the Service's connections, in words; "" is none.
	limits string
	// fastPath means that later packets of a connection meet no rules.
	fastPath bool
}

// excludes reports whether a source is in none of the ranges.
func (n *name) excludes(source netip.Addr) bool {
	return len(n.sourceRanges) > 0 && !slices.ContainsFunc(n.sourceRanges, func(text string) bool {
		cidr, err := netip.ParsePrefix(text)
		return err == nil && cidr.Contains(source)
	})
}

// Names maps addresses to Services, and endpoints to locations.
type Names struct {
	// nodePorts are the addresses on which node ports are served.
	nodePorts []string
	frontends map[frontend]name
	// locations are those of endpoints, by service and IP:port.
	locations map[[2]string]string
	// whole are the Services all of whose endpoints are known, and clusterIPs the Services by their cluster IPs.
	whole      map[string]bool
	clusterIPs map[netip.Addr]string
}

// NewNames returns the names that Services give to their addresses, and to their node ports at the given addresses. An address
// that is not served has none.
func NewNames(nodePorts []string, services ...v1alpha1.Service) *Names {
	n := &Names{nodePorts: nodePorts, frontends: map[frontend]name{}, locations: map[[2]string]string{}, whole: map[string]bool{},
		clusterIPs: map[netip.Addr]string{}}
	for i := range services {
		n.add(&services[i])
	}
	return n
}

func (n *Names) add(s *v1alpha1.Service) {
	service := s.Namespace + "/" + s.Name
	n.whole[service] = s.Time != nil && s.EndpointsNotListed == 0
	for _, text := range s.ClusterIPs {
		if addr, err := netip.ParseAddr(text); err == nil {
			n.clusterIPs[addr] = service
		}
	}
	for _, port := range s.Ports {
		for _, a := range port.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if err != nil || a.Verdict == v1alpha1.VerdictNotServed {
				continue
			}
			ranges := s.SourceRanges
			if a.Kind != "LoadBalancerIP" {
				ranges = nil
			}
			n.frontends[frontend{port.Protocol, netip.AddrPortFrom(addr, a.Port)}] = name{service, port.Name, a, ranges, s.ConnectionLimits, s.FastPath && port.Protocol != "SCTP"}
		}
		for _, e := range port.Endpoints {
			n.locations[[2]string{service, e.Address}] = e.Location
		}
	}
}

// of returns the name of a destination.
func (n *Names) of(protocol string, to netip.AddrPort) (found name, ok bool) {
	if found, ok = n.frontends[frontend{protocol, to}]; ok || !slices.Contains(n.nodePorts, to.Addr().String()) {
		return found, ok
	}
	found, ok = n.frontends[frontend{protocol, netip.AddrPortFrom(cluster.FamilyOf(to.Addr()).Unspecified(), to.Port())}]
	return found, ok
}
