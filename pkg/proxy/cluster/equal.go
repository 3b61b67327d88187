package cluster

import (
	"slices"

	"k8s.io/utils/ptr"
)

// SameSpec reports whether two versions of a Service are equal apart from their endpoints.
func (s *Service) SameSpec(o *Service) bool {
	return s.Name == o.Name && s.UID == o.UID && s.Created == o.Created &&
		slices.Equal(s.ClusterIPs, o.ClusterIPs) &&
		slices.Equal(s.LoadBalancerIPs(), o.LoadBalancerIPs()) &&
		slices.Equal(s.Stray(), o.Stray()) &&
		slices.Equal(s.ExternalIPs(), o.ExternalIPs()) &&
		slices.Equal(s.Ports, o.Ports) &&
		s.InternalPolicy == o.InternalPolicy && s.ExternalPolicy == o.ExternalPolicy &&
		s.PreserveUDP == o.PreserveUDP && s.Affinity == o.Affinity &&
		s.Algorithm == o.Algorithm && s.Ignored == o.Ignored && ptr.Equal(s.Fence, o.Fence) && ptr.Equal(s.FastPath, o.FastPath) &&
		slices.Equal(s.SourceRanges(), o.SourceRanges()) &&
		s.HealthCheckNodePort == o.HealthCheckNodePort
}

// equal compares all fields of two versions of a Service, slices by identity.
func (s *Service) equal(o *Service) bool {
	return s.SameSpec(o) && slices.Equal(s.Slices, o.Slices)
}

// equal compares two versions of a slice. Triggered is ignored: a slice with the same endpoints is not a change.
func (s *EndpointSlice) equal(o *EndpointSlice) bool {
	return s.Name == o.Name && s.Ignored == o.Ignored && s.Foreign == o.Foreign && slices.Equal(s.Ports, o.Ports) && slices.Equal(s.Endpoints, o.Endpoints)
}

func (n *Node) equal(o *Node) bool {
	return n.Name == o.Name && n.Exists == o.Exists && n.UID == o.UID && n.Zone == o.Zone && n.Draining == o.Draining &&
		slices.Equal(n.Addresses, o.Addresses) &&
		slices.Equal(n.Interfaces, o.Interfaces) && slices.Equal(n.Devices, o.Devices) &&
		slices.Equal(n.PodCIDRs, o.PodCIDRs)
}
