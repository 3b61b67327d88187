package nftables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// withExternalIPs is a cluster of which every tenth Service has an external IP beside two ports, and every fifth an
// acknowledged address and a node port.
func withExternalIPs(services int) *cluster.Snapshot {
	all := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()
	for n := range services {
		s := &cluster.Service{
			Name:       cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("service-", n)},
			ClusterIPs: []netip.Addr{addrAt(172<<24, n), netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", n))},
			Ports:      []cluster.ServicePort{{Name: "http", Protocol: cluster.TCP, Port: 80}, {Name: "dns", Protocol: cluster.UDP, Port: 53}},
			Slices: []*cluster.EndpointSlice{{
				Name:  "a",
				Ports: []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Port: 8080}, {Name: "dns", Protocol: cluster.UDP, Port: 53}},
				Endpoints: []cluster.Endpoint{
					{Addr: addrAt(10<<24, 2*n), Conditions: cluster.Ready | cluster.Serving},
					{Addr: addrAt(10<<24, 2*n+1), Conditions: cluster.Ready | cluster.Serving | cluster.Local},
				},
			}},
		}
		if n%5 == 0 {
			s.LoadBalancerIPs = []netip.Addr{addrAt(203<<24, n)}
			s.Ports[0].NodePort = uint16(30000 + n)
		}
		if n%10 == 0 {
			s.ExternalIPs = []netip.Addr{addrAt(198<<24, n)}
		}
		all.Set(s.Name, s)
	}
	return &cluster.Snapshot{Services: all.Map(), Node: &cluster.Node{Name: "n", Addresses: []netip.Addr{netip.MustParseAddr("172.18.0.11")}}}
}

// changedLines are the lines that only one of two dumps has.
func changedLines(before, after string) []string {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]--
	}
	for line := range strings.Lines(after) {
		count[line]++
	}
	var changed []string
	for line, n := range count {
		if n != 0 {
			changed = append(changed, strings.TrimSpace(line))
		}
	}
	return changed
}

// TestGateRestart restarts from one value of AllowServiceExternalIPs to the other, both ways: just the elements of external
// IPs come and go, no rule is written, and a table that has known them is the same as one that never has.
func TestGateRestart(t *testing.T) {
	const services = 200
	snapshot := withExternalIPs(services)
	off := plan.Compute(snapshot, &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}}, nil)
	on := plan.Compute(snapshot, &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}, ServeExternalIPs: true}, nil)

	b, tables := fakes()
	sync(t, b, off)
	never := tables[0].Dump()
	if strings.Contains(never, "198.0.0.") {
		t.Fatalf("an external IP is in the table:\n%s", never)
	}
	before := never
	for _, next := range []*plan.Plan{on, off, on} {
		b = New(testOptions, b.families[0].table, b.families[1].table)
		elements, rules := sync(t, b, next)
		holds(t, b, next)
		// Each of two ports has its verdict and a slot for each of two endpoints.
		if want := services / 10 * 2 * (1 + 2); elements != want || rules != 0 {
			t.Errorf("the restart wrote %d elements and %d rules, want %d and 0", elements, rules, want)
		}
		after := tables[0].Dump()
		for _, line := range changedLines(before, after) {
			if !strings.Contains(line, "198.0.0.") {
				t.Errorf("the restart changed what is no external IP's: %s", line)
			}
		}
		if next == off && after != never {
			t.Errorf("something is left over: %q", changedLines(never, after))
		}
		before = after
	}
}

// TestGateWithoutEndpoints does the same where external IPs would be refused or dropped.
func TestGateWithoutEndpoints(t *testing.T) {
	snapshot := withExternalIPs(20)
	services := snapshot.Services.Edit()
	for name, s := range snapshot.Services.All() {
		bare := *s
		bare.Slices, bare.ExternalPolicy = nil, cluster.PolicyLocal
		services.Set(name, &bare)
	}
	bare := &cluster.Snapshot{Services: services.Map(), Node: snapshot.Node}
	b, tables := fakes()
	off := plan.Compute(bare, &plan.Options{}, nil)
	sync(t, b, off)
	never := tables[0].Dump()
	b = New(testOptions, b.families[0].table, b.families[1].table)
	if elements, rules := sync(t, b, plan.Compute(bare, &plan.Options{ServeExternalIPs: true}, nil)); elements != 2*2 || rules != 0 {
		t.Errorf("the gate wrote %d elements and %d rules, want 4 and 0", elements, rules)
	}
	if !strings.Contains(tables[0].Dump(), "198.0.0.10") {
		t.Error("with the gate on, the external IP of a Service without endpoints is not refused")
	}
	b = New(testOptions, b.families[0].table, b.families[1].table)
	sync(t, b, off)
	if after := tables[0].Dump(); after != never || strings.Contains(after, "198.0.0.") {
		t.Errorf("something is left over: %q", changedLines(never, after))
	}
}
