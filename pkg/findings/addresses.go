package findings

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// The default of the API server's --service-node-port-range.
const firstNodePort, lastNodePort = 30000, 32767

// addresses finds what is unusual about a Service's addresses and ports.
func (v *view) addresses(s *cluster.Service, decided *plan.Service) {
	for _, addr := range s.LoadBalancerIPs() {
		v.outside(s, plan.LoadBalancerIP, addr)
	}
	if decided.WithheldExternalIPs == 0 {
		for _, addr := range s.ExternalIPs() {
			v.outside(s, plan.ExternalIP, addr)
		}
	}
	for _, addr := range s.ClusterIPs {
		ranges := slices.DeleteFunc(slices.Clone(v.snapshot.ServiceCIDRs), func(r netip.Prefix) bool { return r.Addr().Is4() != addr.Is4() })
		if len(ranges) > 0 && !within(ranges, addr) {
			v.addService(s.Name, OutsideServiceCIDRs, "cluster IP %s is in none of the ServiceCIDRs %s", addr, some(ranges))
		}
	}
	var open []netip.Addr
	balanced := false
	for _, route := range decided.Routes {
		if route.Kind == plan.LoadBalancerIP {
			balanced = true
			if len(s.SourceRanges()) > 0 && len(route.SourceRanges) == 0 {
				open = append(open, route.Frontend.Addr)
			}
		}
	}
	if len(open) > 0 {
		v.addService(s.Name, SourceRanges, "loadBalancerSourceRanges has no %s range: %s is open to everyone", cluster.FamilyOf(open[0]), some(open))
	}
	if balanced && s.ExternalPolicy == cluster.PolicyLocal && s.HealthCheckNodePort == 0 {
		v.addService(s.Name, HealthCheckMissing, "externalTrafficPolicy is Local, and spec.healthCheckNodePort is not set")
	}
	for _, port := range s.Ports {
		v.nodePort(s.Name, "node port", port.NodePort)
	}
	v.nodePort(s.Name, "health check node port", s.HealthCheckNodePort)
}

// outside looks at an address that clients outside the cluster use.
func (v *view) outside(s *cluster.Service, kind plan.Kind, addr netip.Addr) {
	switch {
	case addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified():
		v.addService(s.Name, AddressForbidden, "%s %s is a loopback, link-local, multicast or unspecified address", kind, addr)
	case within(v.snapshot.ServiceCIDRs, addr):
		v.addService(s.Name, InsideServiceCIDRs, "%s %s is in a ServiceCIDR", kind, addr)
	}
}

func (v *view) nodePort(name cluster.ServiceName, kind string, port uint16) {
	if port != 0 && (port < firstNodePort || port > lastNodePort) {
		v.addService(name, NodePortRange, "%s %d is not in %d-%d: a program on a node may use it", kind, port, firstNodePort, lastNodePort)
	}
}
