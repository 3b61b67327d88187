package conntrack

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack/conntracktest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// sizes are realistic clusters: Services x endpoints of each.
var sizes = [...]struct{ services, endpoints int }{{10_000, 2}, {5000, 50}}

// BenchmarkSynced compares alternating plans that differ in one endpoint.
func BenchmarkSynced(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			c := clusters.NewSized(size.services, size.endpoints)
			one := c.Plan()
			c.Set(5, -size.endpoints)
			other := c.Plan()
			r := New(Config{Families: []cluster.Family{cluster.IPv4}, Table: &conntracktest.Fake{}, Swept: func(cluster.Family, time.Duration, int) {}})
			var history proxy.History
			s := history.Add(&proxy.Sync{Plan: one, Results: []backend.Result{{Family: cluster.IPv4}}})
			r.Synced(s)
			b.ReportAllocs()
			for b.Loop() {
				one, other = other, one
				s.Plan = one
				r.Synced(history.Add(s))
			}
		})
	}
}

// BenchmarkStale decides about the flows of a sweep: to a Service's address, to one that a Service had, and to another.
func BenchmarkStale(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			p := clusters.NewSized(size.services, size.endpoints).Plan()
			w := work{udp: true}
			var flows []*conntrack.Flow
			for frontend := range p.Frontends.All() {
				to := netip.AddrPortFrom(frontend.Addr, frontend.Port)
				flows = append(flows, &conntrack.Flow{Destination: to, ReplySource: netip.MustParseAddrPort("10.1.2.3:53")})
				if len(flows) == 100 {
					break
				}
			}
			other := netip.MustParseAddrPort("192.0.2.1:53")
			flows = append(flows, &conntrack.Flow{Destination: other, ReplySource: other})
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				flow := flows[n%len(flows)]
				w.stale(p, flow)
				early(p, flow)
			}
		})
	}
}
