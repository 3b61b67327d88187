package status

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Head is what a long list of Services is searched, sorted and counted by. It costs much less than the object, which is made of it.
type Head struct {
	Service   *cluster.Service
	Endpoints v1alpha1.EndpointCounts
	// Problems are the reasons why connections fail on this node.
	Problems []v1alpha1.Problem
}

// Heads returns the selected Services, sorted by namespace and name.
func (s *State) Heads(f Filter) iter.Seq[Head] {
	return func(yield func(Head) bool) {
		for service := range s.Snapshot.Services.Values() {
			if s.Selects(f, service) && !yield(s.head(service)) {
				return
			}
		}
	}
}

func (s *State) head(of *cluster.Service) Head {
	head := Head{Service: of, Endpoints: countEndpoints(of)}
	for _, problem := range s.Plan.Problems(of.Name, s.Observed) {
		head.Problems = append(head.Problems, v1alpha1.Problem(problem))
	}
	return head
}

// Services returns the selected Services without their endpoints. counts may be nil.
func (s *State) Services(f Filter, counts *backend.Connections) iter.Seq[*v1alpha1.Service] {
	return func(yield func(*v1alpha1.Service) bool) {
		for head := range s.Heads(f) {
			if !yield(s.Summary(head, counts)) {
				return
			}
		}
	}
}

// Service returns one Service with its endpoints; nil if it is not served. counts may be nil.
func (s *State) Service(name cluster.ServiceName, counts *backend.Connections) *v1alpha1.Service {
	of, ok := s.Snapshot.Services.Get(name)
	if !ok {
		return nil
	}
	out := s.Summary(s.head(of), counts)
	out.Time = new(s.readAt(counts))
	out.NodePortAddresses = Texts(s.nodePortAddresses(of))
	s.addEndpoints(out, of, s.planned(name), counts)
	for _, slice := range of.Slices {
		out.Slices = append(out.Slices, sliceOf(name, slice))
	}
	return out
}

// nodePortAddresses returns the addresses on which a Service's node ports are served; nil if it has none.
func (s *State) nodePortAddresses(of *cluster.Service) (addrs []netip.Addr) {
	if !slices.ContainsFunc(of.Ports, func(p cluster.ServicePort) bool { return p.NodePort != 0 }) {
		return nil
	}
	for _, addr := range s.Plan.Node.NodePortAddrs {
		if of.InFamily(cluster.FamilyOf(addr)) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// planned returns the plan of a Service, which is empty if there is none.
func (s *State) planned(name cluster.ServiceName) *plan.Service {
	if planned, ok := s.Plan.Services.Get(name); ok {
		return planned
	}
	return &plan.Service{}
}

// Summary returns a Service without its endpoints. counts may be nil.
func (s *State) Summary(head Head, counts *backend.Connections) *v1alpha1.Service {
	of := head.Service
	planned := s.planned(of.Name)
	out := &v1alpha1.Service{
		TypeMeta:  v1alpha1.Meta(v1alpha1.KindService),
		Namespace: of.Name.Namespace, Name: of.Name.Name,
		ClusterIPs: Texts(of.ClusterIPs), LoadBalancerIPs: Texts(of.LoadBalancerIPs()), ExternalIPs: Texts(of.ExternalIPs()),
		InternalTrafficPolicy: of.InternalPolicy.String(), ExternalTrafficPolicy: of.ExternalPolicy.String(),
		SessionAffinitySeconds: int(of.Affinity.Seconds()),
		Balancing:              balancing(planned),
		ConnectionLimits:       connectionLimits(planned),
		PreservesUDPFlows:      planned.KeepsTerminating,
		FastPath:               slices.ContainsFunc(planned.Routes, func(r *plan.Route) bool { return r.FastPath }),
		SourceRanges:           Texts(of.SourceRanges()),
		Endpoints:              head.Endpoints,
		Problems:               head.Problems,
		HealthCheck:            healthCheck(planned.HealthCheck),
	}
	if s.Changed != nil {
		out.Changed = s.Changed(of.Name)
	}
	routes := map[portKey][]*plan.Route{}
	for _, route := range planned.Routes {
		key := portKey{route.Port(), route.Frontend.Protocol}
		routes[key] = append(routes[key], route)
	}
	for i := range of.Ports {
		port := &of.Ports[i]
		out.Ports = append(out.Ports, s.port(port, routes[portKey{port.Name, port.Protocol}], counts))
	}
	if counts != nil {
		out.Connections, out.Refused = new(uint64), new(uint64)
		limited := uint64(0)
		for route := range s.RoutesOf(of.Name) {
			*out.Connections += counts.Frontends[route.Frontend]
			*out.Refused += counts.Refused[route.Frontend]
			if route.Fence != nil {
				limited += counts.Limited[route.Frontend]
				out.Limited = &limited
			}
		}
	}
	return out
}

// balancing describes how connections get one of several endpoints; "" if at random with equal probability.
func balancing(planned *plan.Service) string {
	for _, route := range planned.Routes {
		for _, pool := range []*plan.Pool{route.Pool, route.ShortCut} {
			if pool != nil && pool.Spread != nil {
				return pool.Picking()
			}
		}
	}
	return ""
}

// connectionLimits describes the bounds of a Service's connections; "" without any.
func connectionLimits(planned *plan.Service) string {
	if fence := planned.Fence(); fence != nil {
		return fence.String()
	}
	return ""
}

// portKey identifies a port of a Service.
type portKey struct {
	name     string
	protocol cluster.Protocol
}

// port describes a port with its addresses, which are those of its routes.
func (s *State) port(port *cluster.ServicePort, routes []*plan.Route, counts *backend.Connections) v1alpha1.Port {
	out := v1alpha1.Port{Name: port.Name, Protocol: port.Protocol.String(), Port: port.Port, NodePort: port.NodePort, Addresses: []v1alpha1.Address{}}
	for _, route := range routes {
		out.Addresses = append(out.Addresses, s.address(route, counts))
	}
	slices.SortStableFunc(out.Addresses, func(a, b v1alpha1.Address) int { return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind) })
	return out
}

// kinds are the kinds of addresses in the order of plan.Kind.
var kinds = []string{plan.ClusterIP: "ClusterIP", plan.LoadBalancerIP: "LoadBalancerIP", plan.ExternalIP: "ExternalIP", plan.NodePort: "NodePort"}

// verdicts are the names of plan.Verdict.
var verdicts = []string{
	plan.Balance: v1alpha1.VerdictBalance, plan.Reject: v1alpha1.VerdictReject, plan.Drop: v1alpha1.VerdictDrop, plan.Pass: v1alpha1.VerdictPass,
}

// address describes a route.
func (s *State) address(route *plan.Route, counts *backend.Connections) v1alpha1.Address {
	out := v1alpha1.Address{
		Address: route.Frontend.Addr.String(), Kind: kinds[route.Kind], Port: route.Frontend.Port,
		TrafficPolicy: route.Policy.String(), Verdict: verdicts[route.Verdict], Reason: route.Reason().String(),
		Endpoints: len(route.Pool.Endpoints),
	}
	if route.Verdict == plan.Balance {
		out.Masquerade = route.Masquerade.String()
	}
	if lost := s.Plan.Lost(route); lost != "" {
		out.Verdict, out.Reason, out.Endpoints, out.Masquerade = v1alpha1.VerdictNotServed, lost, 0, ""
		return out
	}
	if counts != nil {
		out.Connections, out.Refused = new(counts.Frontends[route.Frontend]), new(counts.Refused[route.Frontend])
		if route.Fence != nil {
			out.Limited = new(counts.Limited[route.Frontend])
		}
	}
	return out
}

// countEndpoints counts distinct addresses.
func countEndpoints(of *cluster.Service) v1alpha1.EndpointCounts {
	var counts v1alpha1.EndpointCounts
	seen := map[netip.Addr]cluster.Conditions{}
	for _, slice := range of.Slices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			ready := cluster.Conditions(0)
			if e.Conditions.Has(cluster.Ready) {
				ready = e.Conditions & (cluster.Ready | cluster.Local)
			}
			seen[e.Addr] |= ready
		}
	}
	for _, conditions := range seen {
		counts.All++
		if conditions.Has(cluster.Ready) {
			counts.Ready++
		}
		if conditions.Has(cluster.Ready | cluster.Local) {
			counts.Local++
		}
	}
	return counts
}

func healthCheck(h *plan.HealthCheck) *v1alpha1.HealthCheck {
	if h == nil {
		return nil
	}
	out := &v1alpha1.HealthCheck{Port: h.Port, LocalEndpoints: map[string]int{}}
	for family, n := range h.LocalEndpoints {
		out.LocalEndpoints[family.String()] = n
	}
	return out
}

// maxListed is how many entries of endpoints are listed. The author of a Service may write a hundred million: one for each port and
// endpoint.
const maxListed = 20_000

// addEndpoints adds the endpoints to the ports, with the reasons under those policies that the Service's addresses have.
func (s *State) addEndpoints(out *v1alpha1.Service, of *cluster.Service, planned *plan.Service, counts *backend.Connections) {
	policies := policiesOf(planned)
	var connections map[backend.PortEndpoint]uint64
	if counts != nil {
		connections = counts.ByEndpoint()
	}
	counted := counts != nil && backend.Counted(s.Counter, s.Rules.Families) == backend.CountEndpoints
	entries := 0
	for _, slice := range of.Slices {
		entries += len(slice.Endpoints)
	}
	out.EndpointsNotListed = max(0, (len(of.Ports)-int(planned.WithheldPorts))*entries-maxListed)
	listed := 0
	for listing := range s.Plan.Listings(of.Name) {
		if listed++; listed > maxListed {
			break
		}
		port := &of.Ports[listing.Port]
		e := v1alpha1.Endpoint{
			Address: listing.Endpoint.String(), Slice: listing.Slice, Location: location(listing.Conditions),
			Ready: listing.Conditions.Has(cluster.Ready), Serving: listing.Conditions.Has(cluster.Serving),
			Terminating: listing.Conditions.Has(cluster.Terminating), Zones: listing.Zones.Names(),
		}
		if s.Plan.Weighs() && listing.Weight != cluster.DefaultWeight {
			e.Weight = &listing.Weight
		}
		if listing.Endpoint.Port() == 0 {
			e.Address = listing.Endpoint.Addr().String()
		}
		for _, policy := range policies {
			if fate := listing.Fates[policy]; fate == plan.Used {
				e.UsedBy = append(e.UsedBy, policy.String())
			} else {
				e.LeftOut = append(e.LeftOut, v1alpha1.LeftOut{TrafficPolicy: policy.String(), Reason: fate.String(), Message: fate.Why()})
			}
		}
		if counted && len(e.UsedBy) > 0 {
			e.Connections = new(connections[backend.PortEndpoint{Port: plan.PortName(of.Name, port.Name), Protocol: port.Protocol, Endpoint: listing.Endpoint}])
		}
		out.Ports[listing.Port].Endpoints = append(out.Ports[listing.Port].Endpoints, e)
	}
}

// policiesOf returns the traffic policies by which connections to a Service's addresses are spread. External addresses
// with policy Local use the policy Cluster for local traffic.
func policiesOf(planned *plan.Service) []cluster.Policy {
	var used [2]bool
	for _, route := range planned.Routes {
		used[route.Policy] = true
		if route.ShortCut != nil {
			used[cluster.PolicyCluster] = true
		}
	}
	var policies []cluster.Policy
	for policy, used := range used {
		if used {
			policies = append(policies, cluster.Policy(policy))
		}
	}
	if policies == nil { // none of its addresses is served, as without a cluster IP of a served family
		policies = []cluster.Policy{cluster.PolicyCluster}
	}
	return policies
}

func location(c cluster.Conditions) string {
	switch {
	case c.Has(cluster.Local):
		return v1alpha1.LocationThisNode
	case c.Has(cluster.NoNodeName):
		return v1alpha1.LocationUnknown
	default:
		return v1alpha1.LocationOtherNode
	}
}
