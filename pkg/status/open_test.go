package status

import (
	"context"
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// TestCanaryIsHidden has a connection of the canary, which is neither a Service's nor waited for, and its frontend, which is not counted.
func TestCanaryIsHidden(t *testing.T) {
	listener := netip.MustParseAddrPort("127.0.0.1:4000")
	snapshot := &cluster.Snapshot{Node: &cluster.Node{}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	s := &State{Snapshot: snapshot, Plan: plan.Compute(snapshot, &plan.Options{Canary: []netip.AddrPort{listener}}, nil),
		Tracked: func(_ context.Context, visit func(cluster.Protocol, netip.AddrPort, netip.AddrPort)) error {
			visit(cluster.TCP, netip.MustParseAddrPort("10.96.0.0:10256"), listener)
			return nil
		}}
	open, err := s.Open(t.Context(), OpenFilter{})
	if err != nil || open.Connections != 0 || s.Describe().Frontends != 0 || s.Plan.Frontends.Len() != 1 {
		t.Errorf("%+v, %v; frontends %d of %d", open, err, s.Describe().Frontends, s.Plan.Frontends.Len())
	}
}
