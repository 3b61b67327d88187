package status

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Tracked calls visit with each open connection that rules have translated: what it was made to, and where its packets go.
type Tracked func(ctx context.Context, visit func(protocol cluster.Protocol, destination, endpoint netip.AddrPort)) error

// OpenFilter selects open connections. The zero value selects those to all Services.
type OpenFilter struct {
	Service  cluster.ServiceName
	Endpoint netip.Addr
}

// ParseOpenFilter returns an OpenFilter of NAMESPACE/NAME and an IP address; empty texts select all. Its errors are QuestionErrors.
func ParseOpenFilter(service, endpoint string) (f OpenFilter, err error) {
	if name, ok := cluster.ParseServiceName(service); ok {
		f.Service = name
	} else if service != "" {
		return f, badQuestion("%q does not name a Service: write NAMESPACE/NAME", service)
	}
	of, err := ParseFilter("", endpoint)
	f.Endpoint = of.Address
	return f, err
}

// openKey is what open connections are counted by.
type openKey struct {
	service  cluster.ServiceName
	protocol cluster.Protocol
	endpoint netip.AddrPort
}

// Open counts the selected open connections by Service and endpoint: those to the Service's addresses, also to endpoints that no slice
// lists any more.
func (s *State) Open(ctx context.Context, f OpenFilter) (*v1alpha1.OpenConnections, error) {
	if s.Tracked == nil {
		return nil, errors.New("no proxy runs here: there are no connections")
	}
	counts := map[openKey]int{}
	out := &v1alpha1.OpenConnections{TypeMeta: v1alpha1.Meta(v1alpha1.KindOpenConnections), Time: s.Now, Items: []v1alpha1.OpenEndpoint{},
		NodeDraining: s.Snapshot.Node.Draining}
	err := s.Tracked(ctx, func(protocol cluster.Protocol, destination, endpoint netip.AddrPort) {
		route := s.Plan.RouteTo(destination, protocol)
		if route == nil || route.IsCanary() || f.Endpoint.IsValid() && f.Endpoint != endpoint.Addr() || f.Service != (cluster.ServiceName{}) && f.Service != route.Service {
			return
		}
		out.Connections++
		counts[openKey{route.Service, protocol, endpoint}]++
	})
	if err != nil {
		return nil, err
	}
	conditions := map[cluster.ServiceName]map[netip.AddrPort]cluster.Conditions{}
	for key, n := range counts {
		if conditions[key.service] == nil {
			conditions[key.service] = s.conditions(key.service)
		}
		item := v1alpha1.OpenEndpoint{Namespace: key.service.Namespace, Name: key.service.Name, Protocol: key.protocol.String(),
			Endpoint: key.endpoint.String(), Connections: n}
		item.State = endpointState(conditions[key.service], key.endpoint)
		out.Items = append(out.Items, item)
	}
	slices.SortFunc(out.Items, func(a, b v1alpha1.OpenEndpoint) int {
		return cmp.Or(cmp.Compare(b.Connections, a.Connections), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	if more := len(out.Items) - maxListed; more > 0 {
		out.Items, out.EndpointsNotListed = out.Items[:maxListed], more
	}
	return out, nil
}

// conditions returns those of a Service's endpoints. An endpoint that several slices list has those of all together.
func (s *State) conditions(of cluster.ServiceName) map[netip.AddrPort]cluster.Conditions {
	all := map[netip.AddrPort]cluster.Conditions{}
	for listing := range s.Plan.Listings(of) {
		all[listing.Endpoint] |= listing.Conditions
	}
	return all
}

// endpointState returns a word for the phase of an endpoint's life.
func endpointState(listed map[netip.AddrPort]cluster.Conditions, endpoint netip.AddrPort) string {
	c, known := listed[endpoint]
	switch {
	case !known:
		return v1alpha1.EndpointGone
	case c.Has(cluster.Ready):
		return v1alpha1.EndpointReady
	case c.Has(cluster.Terminating | cluster.Serving):
		return v1alpha1.EndpointTerminatingServing
	case c.Has(cluster.Terminating):
		return v1alpha1.EndpointTerminating
	default:
		return v1alpha1.EndpointNotReady
	}
}
