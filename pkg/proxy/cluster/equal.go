package cluster

import "slices"

// SameSpec tells whether two versions of a Service say the same, whatever endpoints they have.
func (s *Service) SameSpec(o *Service) bool {
	return s.Name == o.Name && s.UID == o.UID && s.Created.Equal(o.Created) &&
		slices.Equal(s.ClusterIPs, o.ClusterIPs) &&
		slices.Equal(s.LoadBalancerIPs, o.LoadBalancerIPs) &&
		slices.Equal(s.ExternalIPs, o.ExternalIPs) &&
		slices.Equal(s.Ports, o.Ports) &&
		s.InternalPolicy == o.InternalPolicy && s.ExternalPolicy == o.ExternalPolicy &&
		s.Affinity == o.Affinity &&
		slices.Equal(s.SourceRanges, o.SourceRanges) &&
		s.HealthCheckNodePort == o.HealthCheckNodePort
}

// equal compares what two versions of a Service say, slices by identity.
func (s *Service) equal(o *Service) bool {
	return s.SameSpec(o) && slices.Equal(s.Slices, o.Slices)
}

// equal compares two versions of a slice. When its pods changed does not count: the same endpoints are no news.
func (s *EndpointSlice) equal(o *EndpointSlice) bool {
	return s.Name == o.Name && slices.Equal(s.Ports, o.Ports) && slices.Equal(s.Endpoints, o.Endpoints)
}

func (n *Node) equal(o *Node) bool {
	return n.Name == o.Name && n.Exists == o.Exists && n.Zone == o.Zone && n.Draining == o.Draining &&
		slices.Equal(n.Addresses, o.Addresses) &&
		slices.Equal(n.Interfaces, o.Interfaces) &&
		slices.Equal(n.PodCIDRs, o.PodCIDRs)
}
