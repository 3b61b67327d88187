package check

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Rehearsal is a backend to try.
type Rehearsal struct {
	// Families are names: IPv4, IPv6.
	Families []string
	// Plan are the settings of the proxy.
	Plan *plan.Options
	// Mode is the backend's.
	Mode backend.Mode
	// Variant is what its Variant returned for the node.
	Variant string
}

// Run tries each feature and then the whole backend, for each family: it writes the rules for Services that use all of its
// features. Call it in a network namespace that is removed afterwards.
func (r *Rehearsal) Run(ctx context.Context) ([]Step, error) {
	if len(r.Families) == 0 {
		return nil, errors.New("there is nothing to try: no family is given")
	}
	var steps []Step
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if !slices.Contains(r.Families, family.String()) {
			continue
		}
		features, err := r.Mode.Features(ctx, r.Variant, family)
		for _, f := range features {
			steps = append(steps, Step{Name: fmt.Sprintf("%s (%s)", f.Name, family), Module: f.Module, Error: errorText(f.Err)})
		}
		if err == nil {
			err = r.sync(ctx, family)
		}
		steps = append(steps, Step{Name: fmt.Sprintf("the whole ruleset (%s)", family), Error: errorText(err)})
	}
	return steps, nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// sync writes the rules for the sample.
func (r *Rehearsal) sync(ctx context.Context, family cluster.Family) (err error) {
	opened, err := r.Mode.Open(ctx, family)
	if err != nil {
		return err
	}
	defer func() {
		if closed := opened.Close(); err == nil {
			err = closed
		}
	}()
	for _, result := range opened.Sync(ctx, plan.Compute(sample(), r.Plan, nil)) {
		if result.Err != nil {
			return result.Err
		}
		if len(result.Refused) > 0 {
			return fmt.Errorf("port %s: %w", result.Refused[0].Port, result.Refused[0].Cause)
		}
	}
	return nil
}

// remote returns a slice without the endpoints of this node.
func remote(slice *cluster.EndpointSlice) *cluster.EndpointSlice {
	other := *slice
	other.Endpoints = slice.Endpoints[1:]
	return &other
}

// sample has Services with every kind of address, both policies, source ranges, session affinity, endpoints on other nodes
// only, and none.
func sample() *cluster.Snapshot {
	addr := netip.MustParseAddr
	slice := &cluster.EndpointSlice{Name: "4", Ports: []cluster.EndpointPort{{Name: "a", Protocol: cluster.TCP, Port: 80}, {Name: "b", Protocol: cluster.UDP, Port: 53}},
		Endpoints: []cluster.Endpoint{{Addr: addr("192.0.2.65"), Conditions: cluster.Ready | cluster.Local}, {Addr: addr("192.0.2.66"), Conditions: cluster.Ready}}}
	slice6 := &cluster.EndpointSlice{Name: "6", Ports: slice.Ports,
		Endpoints: []cluster.Endpoint{{Addr: addr("2001:db8::65"), Conditions: cluster.Ready | cluster.Local}, {Addr: addr("2001:db8::66"), Conditions: cluster.Ready}}}
	service := func(n byte, change func(*cluster.Service)) *cluster.Service {
		port := 31000 + 2*uint16(n)
		s := &cluster.Service{Name: cluster.ServiceName{Namespace: "kube-proxy-check", Name: fmt.Sprint("s", n)},
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, n}), addr(fmt.Sprintf("2001:db8:1::%x", n))},
			External: &cluster.External{
				LoadBalancerIPs: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, n}), addr(fmt.Sprintf("2001:db8:2::%x", n))}},
			Ports:  []cluster.ServicePort{{Name: "a", Protocol: cluster.TCP, Port: 80, NodePort: port}, {Name: "b", Protocol: cluster.UDP, Port: 53, NodePort: port + 1}},
			Slices: []*cluster.EndpointSlice{slice, slice6}}
		change(s)
		return s
	}
	services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()
	for _, s := range []*cluster.Service{
		service(1, func(s *cluster.Service) {
			s.External.ExternalIPs = []netip.Addr{addr("192.0.2.129"), addr("2001:db8:3::1")}
		}),
		service(2, func(s *cluster.Service) { s.Affinity = 3 * time.Hour }),
		service(3, func(s *cluster.Service) {
			s.ExternalPolicy, s.InternalPolicy = cluster.PolicyLocal, cluster.PolicyLocal
		}),
		service(4, func(s *cluster.Service) {
			s.External.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
		}),
		service(5, func(s *cluster.Service) { s.Slices = nil }),
		service(6, func(s *cluster.Service) {
			s.ExternalPolicy, s.Slices = cluster.PolicyLocal, []*cluster.EndpointSlice{remote(slice), remote(slice6)}
		}),
	} {
		services.Set(s.Name, s)
	}
	return &cluster.Snapshot{Services: services.Map(), ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/112")},
		Node: &cluster.Node{Name: "check", Exists: true, Addresses: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")},
			Interfaces: []netip.Addr{addr("127.0.0.1"), addr("192.0.2.1"), addr("2001:db8::1")}}}
}
