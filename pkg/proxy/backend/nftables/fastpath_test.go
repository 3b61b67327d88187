package nftables

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
)

// fastPlan is a plan for a Service with a load balancer IP and a node port that asks for the fast path or not.
func fastPlan(t *testing.T, family cluster.Family, fast bool, devices ...cluster.Device) *plan.Plan {
	t.Helper()
	return plan.Compute(fastService{fast, "10.244.1.2", ""}.snapshot(t, family, devices...), &plan.Options{FastPath: plan.FastPath{On: true}}, nil)
}

// fastService is a Service that asks for the fast path or not, with one endpoint and, unless they are empty, source ranges.
type fastService struct {
	fast             bool
	endpoint, ranges string
}

func (s fastService) snapshot(t *testing.T, family cluster.Family, devices ...cluster.Device) *cluster.Snapshot {
	t.Helper()
	read, err := cases.Snapshot(fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {kube-proxy/fast-path: "%t"}}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80, nodePort: 30080}, {name: dns, port: 53, protocol: UDP, nodePort: 30053}, {name: s, port: 99, protocol: SCTP}]
  type: LoadBalancer
  loadBalancerSourceRanges: [%s]
status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}, {name: s, port: 8080, protocol: SCTP}]
endpoints: [{addresses: [%s], nodeName: node1, conditions: {ready: true}}]
`, s.fast, s.ranges, s.endpoint), family)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, node := *read, *read.Node
	node.Devices, snapshot.Node = devices, &node
	return &snapshot
}

// checkFlowtables checks that a table has these flowtables, as NAME:DEVICES, and a rule that adds to one if there is any.
func checkFlowtables(t *testing.T, table *nfttest.Fake, want []string) {
	t.Helper()
	objects, err := table.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, f := range objects.Flowtables {
		got = append(got, f.Name+":"+strings.Join(f.Devices, " "))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("flowtables %q, want %q", got, want)
	}
	if text := table.Dump(); strings.Contains(text, "flow add @fast-path") != (len(want) > 0) {
		t.Fatalf("with the flowtables %q:\n%s", want, text)
	}
}

// TestFastPath follows the flowtable and what leads to it through the life of a table.
func TestFastPath(t *testing.T) {
	eth0, pod, again := cluster.Device{Name: "eth0", Index: 2}, cluster.Device{Name: "veth1", Index: 7}, cluster.Device{Name: "veth1", Index: 8}
	b, table := oneFake()
	defer b.Close()
	exist := map[string]int{"eth0": 2, "veth1": 8}
	b.families[0].opts.Devices = func() (map[string]int, error) { return exist, nil }
	has := func(want ...string) {
		t.Helper()
		checkFlowtables(t, table, want)
	}
	without := fastPlan(t, cluster.IPv4, false, eth0)
	mustSync(t, b, without)
	has() // no Service asks
	mustSync(t, b, fastPlan(t, cluster.IPv4, true, eth0))
	has("fast-path:eth0")
	if n := strings.Count(table.Dump(), `"default/web:http"`+"\n"); n < 3 {
		t.Errorf("the sets of the fast path:\n%s", table.Dump())
	}

	p := fastPlan(t, cluster.IPv4, true, eth0, pod)
	if elements, rules := mustSync(t, b, p); elements+rules > 0 {
		t.Errorf("a device took %d elements and %d rules", elements, rules)
	}
	has("fast-path:eth0 veth1")
	writes := table.Stats().Writes
	mustSync(t, b, fastPlan(t, cluster.IPv4, true, eth0, pod))
	if table.Stats().Writes != writes {
		t.Error("the same devices were written again")
	}
	table.LoseDevice("veth1") // the pod is gone, and another one has a device of that name
	mustSync(t, b, fastPlan(t, cluster.IPv4, true, eth0, again))
	has("fast-path:eth0 veth1")

	restarted := newBackend(testOptions, table.Beside(table))
	writes = table.Stats().Writes
	mustSync(t, restarted, fastPlan(t, cluster.IPv4, true, eth0, again))
	if table.Stats().Writes != writes {
		t.Error("a restart wrote something")
	}
	restarted.Close()

	// Another program removes a device. The fake has no such command.
	table.LoseDevice("eth0")
	tx := table.NewTransaction()
	tx.Add(&knftables.Counter{Name: "theirs"})
	if err := table.External().Run(tx); err != nil {
		t.Fatal(err)
	}
	p = fastPlan(t, cluster.IPv4, true, eth0, again)
	drifts, _ := untilRested(t, b, func() { mustSync(t, b, p) })
	if len(drifts) != 1 || !slices.Contains(drifts[0].Details, "device eth0 of flowtable fast-path was removed") {
		t.Errorf("found %v", drifts)
	}
	mustSync(t, b, p)
	has("fast-path:veth1 eth0")

	// A pod ends, and the kernel removes its device.
	delete(exist, "veth1")
	table.LoseDevice("veth1")
	if _, drift, err := b.families[0].Reread(t.Context(), keeper.Touched{All: true}, nil); drift != nil || err != nil {
		t.Errorf("after the end of a pod: %v, %v", drift, err)
	}
	exist["veth1"] = 8
	mustSync(t, b, without)
	mustSync(t, b, p)
	has("fast-path:eth0 veth1")

	// Without the feature gate the next process removes it.
	without = plan.Compute(fastService{true, "10.244.1.2", ""}.snapshot(t, cluster.IPv4, eth0), &plan.Options{}, nil)
	restarted = newBackend(testOptions, table.Beside(table))
	defer restarted.Close()
	mustSync(t, restarted, without)
	has()
	if text := table.Dump(); strings.Contains(text, "fast-path") {
		t.Errorf("left over:\n%s", text)
	}
}

// TestRefusedDevices has devices that the kernel refuses, or that have just disappeared: the others are in the flowtable, and each sync
// tries again.
func TestRefusedDevices(t *testing.T) {
	b, table := oneFake()
	defer b.Close()
	errno := unix.EBUSY
	refuse := func(object string, _ []byte) unix.Errno {
		if object == "device tun0" {
			return errno
		}
		return 0
	}
	p := fastPlan(t, cluster.IPv4, true, cluster.Device{Name: "eth0", Index: 2}, cluster.Device{Name: "tun0", Index: 3}, cluster.Device{Name: "veth1", Index: 7})
	devices := func(want ...string) {
		t.Helper()
		objects, err := table.Objects(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := objects.Flowtables[0].Devices; !slices.Equal(got, want) {
			t.Errorf("%v: devices %q, want %q", errno, got, want)
		}
	}
	for _, errno = range []unix.Errno{unix.EBUSY, unix.EOPNOTSUPP, unix.ENOMEM, unix.ENOENT} {
		table.Refuse(false, refuse)
		mustSync(t, b, p)
		devices("eth0", "veth1")
		if held := b.families[0].have.holds.devices; len(held) != 2 {
			t.Errorf("%v: holds %v", errno, held)
		}
	}
	table.Refuse(false, nil)
	mustSync(t, b, p)
	devices("eth0", "veth1", "tun0")
}

// TestFastPathText shows the rules of the fast path, and which connections meet them.
func TestFastPathText(t *testing.T) {
	text := Mode{Options: testOptions}.Render(fastPlan(t, cluster.IPv6, true, cluster.Device{Name: "eth0", Index: 2}), cluster.IPv6)
	for _, want := range []string{
		"flowtable fast-path {\n\t\thook ingress priority filter\n\t\tdevices = { \"eth0\" }\n\t\tcounter\n\t}",
		"type filter hook forward priority filter; policy accept;\n\t\tct packets > 20 ct status dnat ct state established jump fast-path\n\t\tct state established,related,untracked accept",
		"chain fast-path {\n\t\tmeta l4proto tcp ct original ip6 daddr . meta l4proto . ct original proto-dst @fast-path-services flow add @fast-path\n",
		"set fast-path-services {\n\t\ttype ipv6_addr . inet_proto . inet_service\n\t\telements = {\n\t\t\tfd00:10:96::a . tcp . 80 comment \"default/web:http\",",
		"set fast-path-nodeports {\n\t\ttype inet_proto . inet_service\n\t\telements = {\n\t\t\ttcp . 30080 comment",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks\n%s", want)
		}
	}
	_, sets, _ := strings.Cut(text, "set fast-path-services {")
	sets, _, _ = strings.Cut(sets, "chain")
	if strings.Contains(sets, "sctp") {
		t.Error("SCTP is on the fast path")
	}
	if t.Failed() {
		t.Log(text)
	}
}
