package iptables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// TestSimilarAddresses has many load balancer IPs that differ in their highest bits only: trees end before nf_tables' limit of nested chains,
// and before chains would be written that lead to later ones.
func TestSimilarAddresses(t *testing.T) {
	b, _ := fakes(t, ipt.NFT)
	snapshot := clusters.WithExternalIPs(500)
	services := snapshot.Services.Edit()
	for n := range 100 {
		was, _ := snapshot.Services.Get(clusters.NameAt(n))
		s := *was
		s.External = &cluster.External{LoadBalancerIPs: []netip.Addr{clusters.AddrAt(11<<24, n<<18|5), netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::5", n))}}
		services.Set(s.Name, &s)
	}
	p := plan.Compute(&cluster.Snapshot{Services: services.Map(), Node: snapshot.Node}, &plan.Options{}, nil)
	sync(t, b, p)
	holds(t, b, p)
}
