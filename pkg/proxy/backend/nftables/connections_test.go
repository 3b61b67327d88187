package nftables

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestConnections adds packets to counters of elements, and reads them by route: those of an endpoint over all
// frontends, and only on demand.
func TestConnections(t *testing.T) {
	fake := nfttest.New(nf.IPv4, TableName)
	b := newBackend(Options{Mark: 0x4000}, fake)
	s := newSchema(cluster.IPv4, 0, false)
	snapshot, err := cases.Snapshot(clusters.Service("default/web", "clusterIP: 10.96.0.10, type: NodePort, ports: [{name: http, port: 80, nodePort: 30080}]")+
		clusters.Slice("default/web", "web-1", "{name: http, port: 8080}", "{addresses: [10.244.1.2], nodeName: node1}")+
		clusters.Service("default/gone", "clusterIP: 10.96.0.11, ports: [{name: http, port: 80}]"), cluster.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Compute(snapshot, &plan.Options{}, nil)
	if _, err := connections(t.Context(), fake, s, p.Frontends.Values(), true); err != nil {
		t.Errorf("without a table: %v", err)
	}
	for _, result := range b.Sync(t.Context(), p) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	web := plan.Frontend{Addr: netip.MustParseAddr("10.96.0.10"), Protocol: cluster.TCP, Port: 80}
	node := plan.Frontend{Addr: netip.IPv4Unspecified(), Protocol: cluster.TCP, Port: 30080}
	gone := plan.Frontend{Addr: netip.MustParseAddr("10.96.0.11"), Protocol: cluster.TCP, Port: 80}
	for _, count := range []struct {
		set     string
		of      plan.Frontend
		packets uint64
	}{{mapServices, web, 5}, {mapNodePorts, node, 2}, {setUnserved, gone, 3}, {mapEndpoints, web, 5}, {mapNodePortEnds, node, 2}} {
		fake.Count(count.set, s.named(count.set).encode(&element{frontend: count.of}, new(buffer)).Key, count.packets, 60)
	}
	want := backend.NewConnections()
	want.Frontends[web], want.Frontends[node], want.Refused[gone] = 5, 2, 3
	for _, endpoints := range []bool{false, true} {
		if endpoints {
			to := backend.PortEndpoint{Port: "default/web:http", Protocol: cluster.TCP, Endpoint: netip.MustParseAddrPort("10.244.1.2:8080")}
			want.Endpoints[backend.EndpointCounter{PortEndpoint: to, In: mapEndpoints, Frontend: web}] = 5
			want.Endpoints[backend.EndpointCounter{PortEndpoint: to, In: mapNodePortEnds, Frontend: node}] = 2
		}
		got, err := connections(t.Context(), fake, s, p.Frontends.Values(), endpoints)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(plan.Frontend{}, backend.EndpointCounter{})); diff != "" {
			t.Errorf("endpoints %v (-want +got):\n%s", endpoints, diff)
		}
	}
}
