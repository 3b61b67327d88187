package status

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// State is a snapshot with the plan that was made of it. It does not change.
type State struct {
	// Info describes the proxy; its numbers are filled in by State.Describe.
	Info     v1alpha1.Info
	Snapshot *cluster.Snapshot
	Plan     *plan.Plan
	// InForce holds the plans that the rules of each family implement; Plan if it has none. A family that fails has an earlier
	// one than the others.
	InForce map[cluster.Family]*plan.Plan
	// Observed are the problems of Services that the plan does not show.
	Observed plan.Observed
	// Changed returns the last change of a Service; nil if there was none. The field is nil if no proxy runs.
	Changed func(cluster.ServiceName) *v1alpha1.Change
	// Unowned returns the slices without a Service; nil if they are not known.
	Unowned func() []cluster.Unowned
	// Counter reads the kernel's counters; nil if there are none.
	Counter backend.ConnectionCounter
	// Tracked reads the open connections; nil if no proxy runs.
	Tracked Tracked
	// Rules is how the plan becomes rules.
	Rules Rules
	// Now is when the state is looked at.
	Now time.Time
}

// inForce returns the plan that a family's rules implement.
func (s *State) inForce(family cluster.Family) *plan.Plan {
	if p, ok := s.InForce[family]; ok {
		return p
	}
	return s.Plan
}

// NotInForce returns an error if no rules of this proxy are in force yet, in any family: nothing can be said about Services then.
func (s *State) NotInForce() error {
	if len(s.InForce) > 0 {
		return nil
	}
	why := []string{"no sync has succeeded yet; the rules of an earlier proxy stay in force, if there are any"}
	for _, family := range s.Info.Sync.Failed() {
		why = append(why, family.Failure())
	}
	if len(s.Info.Waiting) > 0 {
		why = append(why, "waiting for: "+strings.Join(s.Info.Waiting, ", "))
	}
	return errors.New(strings.Join(why, "; "))
}

// Describe returns the description of the proxy.
func (s *State) Describe() *v1alpha1.Info {
	info := s.Info
	info.TypeMeta = v1alpha1.Meta(v1alpha1.KindInfo)
	info.Node, info.Zone = s.Snapshot.Node.Name, s.Snapshot.Node.Zone
	info.NodeAddresses, info.NodePortAddresses = Texts(s.Snapshot.Node.Addresses), Texts(s.Plan.Node.NodePortAddrs)
	if s.Counter != nil {
		info.ConnectionsCounted = backend.Counted(s.Counter, s.Rules.Families).String()
	}
	info.Problems = slices.Clip(info.Problems)
	for _, problem := range s.Plan.NodeProblems() {
		info.Problems = append(info.Problems, v1alpha1.Problem(problem))
	}
	for _, problems := range s.Observed {
		if info.Observed == nil {
			info.Observed = map[string]int{}
		}
		for reason := range plan.Reasons(problems) {
			info.Observed[reason]++
		}
	}
	info.Services, info.Frontends, info.Contested = s.Plan.Services.Len(), s.Plan.Frontends.Len()-len(s.Plan.Canary), s.Plan.Contested.Len()
	return &info
}

// Filter selects Services. The zero value selects all.
type Filter struct {
	Namespace string
	// Address selects the Services that have it as cluster IP, load balancer IP (served or not) or external IP, or as endpoint; and if it is
	// one of the node's on which node ports are served, those with node ports.
	Address netip.Addr
}

// Selects reports whether a filter selects a Service.
func (s *State) Selects(f Filter, of *cluster.Service) bool {
	if f.Namespace != "" && of.Name.Namespace != f.Namespace {
		return false
	}
	if !f.Address.IsValid() {
		return true
	}
	if slices.Contains(slices.Concat(of.ClusterIPs, of.LoadBalancerIPs(), of.Stray(), of.ExternalIPs()), f.Address) || slices.Contains(s.nodePortAddresses(of), f.Address) {
		return true
	}
	return slices.ContainsFunc(of.Slices, func(slice *cluster.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e cluster.Endpoint) bool { return e.Addr == f.Address })
	})
}

// ParseFilter returns a Filter; an empty text selects all. Its errors are QuestionErrors.
func ParseFilter(namespace, address string) (Filter, error) {
	f := Filter{Namespace: namespace}
	if address == "" {
		return f, nil
	}
	var err error
	if f.Address, err = netip.ParseAddr(address); err != nil || f.Address.Is4In6() {
		return f, badQuestion("%q is not an IPv4 or IPv6 address", address)
	}
	return f, nil
}

// List returns a list without its items, which are those of Services. counts may be nil, and failed is why.
func (s *State) List(f Filter, counts *backend.Connections, failed string) *v1alpha1.ServiceList {
	return &v1alpha1.ServiceList{TypeMeta: v1alpha1.Meta(v1alpha1.KindServiceList), Time: s.readAt(counts), Items: []v1alpha1.Service{},
		Unowned: s.UnownedSlices(f), ConnectionsError: failed}
}

// errNoCounters is the error without a Counter.
var errNoCounters = errors.New("no proxy runs here: there are no counters")

// errNotCounted is the error while nothing is counted.
var errNotCounted = errors.New("connections are not counted: --connection-counters is none, or counters would need too much memory (see the log)")

// Connections reads the kernel's counters of the selected Services, and with endpoints also those of endpoints. It fails
// if it cannot read those of one family.
func (s *State) Connections(ctx context.Context, routes iter.Seq[*plan.Route], endpoints bool) (*backend.Connections, error) {
	if s.Counter == nil {
		return nil, errNoCounters
	}
	if backend.Counted(s.Counter, s.Rules.Families) == backend.CountNothing {
		return nil, errNotCounted
	}
	all := backend.NewConnections()
	for _, family := range s.Rules.Families {
		counts, err := s.Counter.Connections(ctx, family, of(family, routes), endpoints)
		if err != nil {
			return nil, fmt.Errorf("read the counters of %s: %w", family, err)
		}
		all.Add(counts)
	}
	return all, nil
}

// readAt returns when counters were read, or the state's time.
func (s *State) readAt(counts *backend.Connections) time.Time {
	if counts == nil || counts.At.IsZero() {
		return s.Now
	}
	return counts.At
}

// of selects the routes of a family.
func of(family cluster.Family, routes iter.Seq[*plan.Route]) iter.Seq[*plan.Route] {
	return func(yield func(*plan.Route) bool) {
		for route := range routes {
			if route.Frontend.Family() == family && !yield(route) {
				return
			}
		}
	}
}

// Routes returns the served routes of the selected Services.
func (s *State) Routes(f Filter) iter.Seq[*plan.Route] {
	return func(yield func(*plan.Route) bool) {
		for service := range s.Snapshot.Services.Values() {
			if !s.Selects(f, service) {
				continue
			}
			for route := range s.RoutesOf(service.Name) {
				if !yield(route) {
					return
				}
			}
		}
	}
}

// RoutesOf returns the served routes of one Service.
func (s *State) RoutesOf(name cluster.ServiceName) iter.Seq[*plan.Route] {
	return func(yield func(*plan.Route) bool) {
		service, ok := s.Plan.Services.Get(name)
		if !ok {
			return
		}
		for _, route := range service.Routes {
			if served, _ := s.Plan.Frontends.Get(route.Frontend); served == route && !yield(route) {
				return
			}
		}
	}
}

// UnownedSlices returns the EndpointSlices without a Service that match a filter's namespace.
func (s *State) UnownedSlices(f Filter) []v1alpha1.Slice {
	if s.Unowned == nil || f.Address.IsValid() {
		return nil
	}
	var found []v1alpha1.Slice
	for _, unowned := range s.Unowned() {
		if f.Namespace == "" || unowned.Service.Namespace == f.Namespace {
			for _, slice := range unowned.Slices {
				found = append(found, sliceOf(unowned.Service, slice))
			}
		}
	}
	return found
}

func sliceOf(service cluster.ServiceName, slice *cluster.EndpointSlice) v1alpha1.Slice {
	return v1alpha1.Slice{Namespace: service.Namespace, Name: slice.Name, Service: service.Name, Ports: slicePorts(slice), Endpoints: len(slice.Endpoints)}
}

// slicePorts returns a slice's ports as name/protocol/number.
func slicePorts(slice *cluster.EndpointSlice) []string {
	ports := []string{}
	for _, p := range slice.Ports {
		ports = append(ports, fmt.Sprintf("%s/%s/%d", p.Name, p.Protocol, p.Port))
	}
	return ports
}

// Texts formats values; the result is never nil.
func Texts[T fmt.Stringer](values []T) []string {
	all := make([]string, 0, len(values))
	for _, v := range values {
		all = append(all, v.String())
	}
	return all
}
