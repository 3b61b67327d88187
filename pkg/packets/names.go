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
	service *v1alpha1.Service
	port    *v1alpha1.Port
	address *v1alpha1.Address
}

// excludes reports whether a source is in none of the Service's ranges, which are about its load balancer IPs.
func (n *name) excludes(source netip.Addr) bool {
	return n.address.Kind == "LoadBalancerIP" && len(n.service.SourceRanges) > 0 && !slices.ContainsFunc(n.service.SourceRanges, func(text string) bool {
		cidr, err := netip.ParsePrefix(text)
		return err == nil && cidr.Contains(source)
	})
}

// isWhole reports whether all endpoints of the Service are known.
func (n *name) isWhole() bool { return n.service.Time != nil && n.service.EndpointsNotListed == 0 }

// hasFastPath reports whether later packets of a connection meet no rules.
func (n *name) hasFastPath() bool { return n.service.FastPath && n.port.Protocol != "SCTP" }

func nameOf(s *v1alpha1.Service) string { return s.Namespace + "/" + s.Name }

// Names maps addresses to Services, and endpoints to locations.
type Names struct {
	// nodePorts are the addresses on which node ports are served.
	nodePorts []string
	frontends map[frontend]*name
	// locations are those of endpoints, by service and IP:port.
	locations map[[2]string]string
	// clusterIPs are the Services by their cluster IPs.
	clusterIPs map[netip.Addr]string
}

// NewNames returns the names that Services give to their addresses, and to their node ports at the given addresses. An address
// that is not served has none.
func NewNames(nodePorts []string, services ...v1alpha1.Service) *Names {
	n := &Names{nodePorts: nodePorts, frontends: map[frontend]*name{}, locations: map[[2]string]string{}, clusterIPs: map[netip.Addr]string{}}
	for i := range services {
		n.add(&services[i])
	}
	return n
}

func (n *Names) add(s *v1alpha1.Service) {
	service := nameOf(s)
	for _, text := range s.ClusterIPs {
		if addr, err := netip.ParseAddr(text); err == nil {
			n.clusterIPs[addr] = service
		}
	}
	for i := range s.Ports {
		port := &s.Ports[i]
		for j := range port.Addresses {
			a := &port.Addresses[j]
			addr, err := netip.ParseAddr(a.Address)
			if err != nil || a.Verdict == v1alpha1.VerdictNotServed {
				continue
			}
			n.frontends[frontend{port.Protocol, netip.AddrPortFrom(addr, a.Port)}] = &name{s, port, a}
		}
		for _, e := range port.Endpoints {
			n.locations[[2]string{service, e.Address}] = e.Location
		}
	}
}

// of returns the name of a destination; nil if it has none.
func (n *Names) of(protocol string, to netip.AddrPort) *name {
	if found := n.frontends[frontend{protocol, to}]; found != nil || !slices.Contains(n.nodePorts, to.Addr().String()) {
		return found
	}
	return n.frontends[frontend{protocol, netip.AddrPortFrom(cluster.FamilyOf(to.Addr()).Unspecified(), to.Port())}]
}
