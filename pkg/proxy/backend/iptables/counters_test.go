package iptables

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// onLocalhost returns a plan with node ports on the loopback address, and with or without a load balancer IP that has
// source ranges.
func onLocalhost(loopback, restricted bool) *plan.Plan {
	service := &cluster.Service{
		Name: cluster.ServiceName{Namespace: "default", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports: []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80, NodePort: 30080}},
	}
	if restricted {
		service.External = &cluster.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
			SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
	}
	services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(service.Name, service)
	node := &cluster.Node{Interfaces: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}}
	return plan.Compute(&cluster.Snapshot{Services: services, Node: node},
		&plan.Options{NodePorts: plan.NodePortAddresses{Loopback: loopback}}, nil)
}

// wantCounted checks the counters: packets dropped in each family, connections accepted in IPv4.
func wantCounted(t *testing.T, b *Backend, dropped, accepted uint64) {
	t.Helper()
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if family == cluster.IPv6 {
			accepted = 0
		}
		d, err := b.invalidDropped(family)
		a, also := b.localhostAccepted(family)
		if err := errors.Join(err, also); err != nil || d != dropped || a != accepted {
			t.Errorf("%s: %d packets dropped, %d connections accepted, %v; want %d and %d", family, d, a, err, dropped, accepted)
		}
	}
}

// TestCounters checks that the counters of our rules are read from chains with other rules, and are 0 where there are none.
func TestCounters(t *testing.T) {
	for _, test := range []struct {
		name              string
		liberal           string
		plan              *plan.Plan
		dropped, accepted uint64
	}{
		{"alone", "0", onLocalhost(true, false), 7, 5},
		{"among others", "0", onLocalhost(true, true), 7, 5},
		{"no node ports on localhost", "0", onLocalhost(false, true), 7, 0},
		{"no invalid packets", "1", onLocalhost(true, false), 0, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			variants(t, func(t *testing.T, variant ipt.Variant) {
				doors := []*ipttest.Fake{ipttest.New(ipt.IPv4, variant), ipttest.New(ipt.IPv6, variant)}
				b := newBackend(t, settings{tcpBeLiberal: test.liberal}, doors[0], doors[1])
				wantCounted(t, b, 0, 0)
				sync(t, b, test.plan)
				for _, door := range doors {
					door.Count(tableFilter, chainForward, "INVALID", 7)
					door.Count(tableFilter, chainForward, "ACCEPT", 100)
					door.Count(tableFilter, chainFirewall, "--ctorigdst", 5)
					door.Count(tableFilter, chainFirewall, "-j DROP", 100)
				}
				wantCounted(t, b, test.dropped, test.accepted)
				if err := b.Cleanup(context.Background()); err != nil {
					t.Fatal(err)
				}
				wantCounted(t, b, 0, 0)
			})
		})
	}
}

// TestCountersBesideExternalRules checks that there is an error while the chain differs from what was written, because
// its counters cannot be assigned to rules.
func TestCountersBesideExternalRules(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, doors := fakes(t, variant)
		p := onLocalhost(false, false)
		sync(t, b, p)
		doors[0].Count(tableFilter, chainForward, "INVALID", 7)
		if err := doors[0].WriteExternally("*filter\n[9:90] -I KUBE-FORWARD -p tcp -j ACCEPT\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		if n, err := b.invalidDropped(cluster.IPv4); !errors.Is(err, ipt.ErrBusy) {
			t.Errorf("with an external rule: %d, %v", n, err)
		}
		check(t, b, 1)
		sync(t, b, p)
		wantCounted(t, b, 0, 0)
	})
}
