package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// large returns a cluster of Services with one port, a node port and the given number of endpoints each.
func large(services, endpoints int) *cluster.Snapshot {
	all := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()
	for i := range services {
		name := cluster.ServiceName{Namespace: "ns", Name: fmt.Sprintf("service-%05d", i)}
		all.Set(name, &cluster.Service{
			Name:       name,
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)})},
			Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80, NodePort: uint16(1 + i)}},
			Slices:     []*cluster.EndpointSlice{manyEndpoints(i*endpoints, endpoints)},
		})
	}
	return &cluster.Snapshot{Services: all.Map(), Node: &cluster.Node{Name: thisNode}}
}

func manyEndpoints(first, count int) *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{Name: "slice", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 8080}}}
	for i := first; i < first+count; i++ {
		s.Endpoints = append(s.Endpoints, cluster.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Conditions: cluster.Ready | cluster.Serving,
		})
	}
	return s
}

// sizes are realistic clusters: many small Services, and fewer large ones.
var sizes = []struct{ services, endpoints int }{{1000, 2}, {10000, 2}, {5000, 50}, {45000, 1}}

func BenchmarkCold(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			snap, opts := large(size.services, size.endpoints), &Options{}
			b.ReportAllocs()
			for b.Loop() {
				Compute(snap, opts, nil)
			}
		})
	}
}

// BenchmarkOneEndpoint alternates between two versions of one Service that differ in an endpoint.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			snap, opts := large(size.services, size.endpoints), &Options{}
			name := cluster.ServiceName{Namespace: "ns", Name: fmt.Sprintf("service-%05d", size.services/2)}
			old, _ := snap.Services.Get(name)
			service := *old
			service.Slices = []*cluster.EndpointSlice{manyEndpoints(1<<23, size.endpoints+1)}
			other := &cluster.Snapshot{Services: snap.Services.Set(name, &service), Node: snap.Node}
			p := Compute(snap, opts, nil)
			b.ReportAllocs()
			for b.Loop() {
				snap, other = other, snap
				p = Compute(snap, opts, p)
			}
		})
	}
}

// BenchmarkContested plans Services that all claim the same external IP and port. The time for each must hardly depend on their
// number: whoever may write Services can create as many.
func BenchmarkContested(b *testing.B) {
	for _, claimants := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(claimants), func(b *testing.B) {
			snap, opts := large(claimants, 1), &Options{ServeExternalIPs: true}
			shared := &cluster.External{ExternalIPs: []netip.Addr{netip.MustParseAddr("198.51.100.1")}}
			for name, s := range snap.Services.All() {
				claiming := *s
				claiming.External = shared
				snap = &cluster.Snapshot{Services: snap.Services.Set(name, &claiming), Node: snap.Node}
			}
			b.ReportAllocs()
			for b.Loop() {
				if n := Compute(snap, opts, nil).Contested.Len(); n == 0 {
					b.Fatal("nothing is contested")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*claimants), "ns/claim")
		})
	}
}

// BenchmarkKeeps decides about flows of a search for stale ones, to a load balancer IP with source ranges.
func BenchmarkKeeps(b *testing.B) {
	for _, ranges := range []int{0, 10, 50_000} {
		b.Run(fmt.Sprint(ranges), func(b *testing.B) {
			at := func(first byte, n int) netip.Addr {
				return netip.AddrFrom4([4]byte{first, byte(n >> 16), byte(n >> 8), byte(n)})
			}
			s := &cluster.Service{
				Name: cluster.ServiceName{Namespace: "ns", Name: "dns"}, ClusterIPs: addrs(clusterIP), ExternalPolicy: cluster.PolicyLocal,
				Ports:    []cluster.ServicePort{{Protocol: cluster.UDP, Port: 53}},
				External: &cluster.External{LoadBalancerIPs: addrs(virtualIP)},
				Slices:   []*cluster.EndpointSlice{manyEndpoints(0, 50)},
			}
			s.Slices[0].Ports[0].Protocol = cluster.UDP
			for i := range s.Slices[0].Endpoints {
				s.Slices[0].Endpoints[i].Conditions |= cluster.Local
			}
			for n := range ranges {
				s.External.SourceRanges = append(s.External.SourceRanges, netip.PrefixFrom(at(11, 2*n), 32))
			}
			services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(s.Name, s)
			p := Compute(&cluster.Snapshot{Services: services, Node: &cluster.Node{}}, &Options{}, nil)
			route := p.RouteTo(netip.MustParseAddrPort(virtualIP+":53"), cluster.UDP)
			kept := 0
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if p.Keeps(route, at(11, n%100_000), netip.AddrPortFrom(at(10, n%50), 8080)) {
					kept++
				}
			}
			if kept == 0 {
				b.Error("no flow is kept")
			}
		})
	}
}
