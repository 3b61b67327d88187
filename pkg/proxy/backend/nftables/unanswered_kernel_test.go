package nftables

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// restricted is the plan for a load balancer IP, UDP port 53, with source ranges.
func restricted(t *testing.T, family cluster.Family, ranges ...string) *plan.Plan {
	t.Helper()
	spec := "clusterIP: 10.96.0.10, ports: [{name: syslog, port: 514, protocol: UDP}], type: LoadBalancer, loadBalancerSourceRanges: [" + strings.Join(ranges, ", ") + "]"
	snap, err := cases.Snapshot(clusters.Service("default/log", spec)+clusters.LoadBalancer("192.0.2.10")+
		clusters.Slice("default/log", "log-1", "{name: syslog, port: 5140, protocol: UDP}", "{addresses: [10.244.1.2], nodeName: node1}"), family)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Compute(snap, &plan.Options{}, nil)
}

// TestKernelUnansweredClient sends UDP on one flow to a server that never answers, while the source ranges of the Service
// change. nat sees only the first packet of the flow, but each change must apply to the next packet.
func TestKernelUnansweredClient(t *testing.T) {
	t.Parallel()
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			vip, route := netip.MustParseAddr("192.0.2.10"), netip.MustParsePrefix("192.0.2.0/24")
			if family == cluster.IPv6 {
				vip, route = netip.MustParseAddr("fd00:192::2:a"), netip.MustParsePrefix("fd00:192::/32")
			}
			lab := netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{route}})
			b := openIn(t, lab.Node1.Host)
			set := func(ranges ...string) {
				t.Helper()
				if err := lab.Node1.Do(func() error { return laws.Err(b.Sync(t.Context(), restricted(t, family, ranges...))) }); err != nil {
					t.Fatal(err)
				}
			}
			set()
			server, err := lab.Node1.Pods[0].ListenPacket("udp", ":5140")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			client, err := lab.Client.Dial(t.Context(), "udp", netip.AddrPortFrom(vip, 514).String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			send := func(line string) {
				t.Helper()
				if _, err := client.Write([]byte(line)); err != nil {
					t.Fatal(err)
				}
			}
			arrives := func(want string) {
				t.Helper()
				buffer := make([]byte, 100)
				if err := server.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if n, _, err := server.ReadFrom(buffer); err != nil || string(buffer[:n]) != want {
					t.Fatalf("the server received %q, %v; want %q", buffer[:n], err, want)
				}
			}
			send("from everywhere")
			arrives("from everywhere")
			set("10.1.1.0/24")
			send("from elsewhere")
			set("10.1.1.0/24", "172.18.0.100/32")
			send("from the client too")
			arrives("from the client too")
		})
	}
}
