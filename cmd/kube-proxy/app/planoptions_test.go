package app

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// machine is a node with two addresses of each family besides loopback; the first ones are primary.
func machine(t *testing.T) *cluster.Snapshot {
	t.Helper()
	b := cluster.NewBuilder("node1")
	err := b.Update(func(u *cluster.Update) {
		u.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node1"},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00:244:1::/64"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "172.18.0.11"}, {Type: corev1.NodeInternalIP, Address: "fd00:18::b"}}},
		})
		var addrs []netip.Addr
		for _, text := range []string{"127.0.0.1", "172.18.0.11", "192.0.2.1", "::1", "fd00:18::b", "2001:db8::1"} {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		u.SetInterfaces(addrs)
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Snapshot()
}

// TestPlanOptions checks by their effect on a plan what flags select: the addresses of a node on which node ports are served,
// and the connections that are local.
func TestPlanOptions(t *testing.T) {
	const all, primary = config.ProxyModeIPTables, config.ProxyModeNFTables
	const every = "[127.0.0.1 172.18.0.11 192.0.2.1 2001:db8::1 fd00:18::b]"
	for _, test := range []struct {
		mode  config.ProxyMode // its default selects the addresses if the flags do not
		flags []string
		ports string
		local string
	}{
		{primary, nil, "[172.18.0.11 fd00:18::b]", "{[] }"},
		{all, nil, every, "{[] }"},
		{all, []string{"--nodeport-addresses=primary"}, "[172.18.0.11 fd00:18::b]", "{[] }"},
		{primary, []string{"--nodeport-addresses=all"}, every, "{[] }"},
		{primary, []string{"--nodeport-addresses=localhost"}, "[127.0.0.1]", "{[] }"},
		{primary, []string{"--nodeport-addresses=primary,localhost"}, "[127.0.0.1 172.18.0.11 fd00:18::b]", "{[] }"},
		{primary, []string{"--nodeport-addresses=primary,192.0.2.0/24"}, "[172.18.0.11 192.0.2.1 fd00:18::b]", "{[] }"},
		{all, []string{"--nodeport-addresses=192.0.2.7/24,2001:db8::/32"}, "[192.0.2.1 2001:db8::1]", "{[] }"},
		{primary, []string{"--nodeport-addresses=192.0.2.0/24"}, "[192.0.2.1 2001:db8::1 fd00:18::b]", "{[] }"},
		{primary, []string{"--cluster-cidr=10.244.0.0/16,fd00:244::/48"}, "", "{[10.244.0.0/16 fd00:244::/48] }"},
		{primary, []string{"--detect-local-mode=ClusterCIDR", "--cluster-cidr=10.244.9.9/16"}, "", "{[10.244.0.0/16] }"},
		{primary, []string{"--detect-local-mode=NodeCIDR", "--cluster-cidr=10.244.0.0/16"}, "", "{[10.244.1.0/24 fd00:244:1::/64] }"},
		{primary, []string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cbr0"}, "", "{[] cbr0}"},
		{primary, []string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth"}, "", "{[] veth*}"},
	} {
		t.Run(fmt.Sprint(test.mode, test.flags), func(t *testing.T) {
			options, err := PlanOptions(configOf(t, append(test.flags, "--proxy-mode="+string(test.mode))...), features.Read(nil).Gate)
			if err != nil {
				t.Fatal(err)
			}
			options.NodePorts.Loopback = true // in every mode, so that selected ones are visible
			node := plan.Compute(machine(t), options, nil).Node
			if got := fmt.Sprint(node.NodePortAddrs); test.ports != "" && got != test.ports {
				t.Errorf("node ports are served on %s, want %s", got, test.ports)
			}
			if got := fmt.Sprint(node.LocalTraffic); got != test.local {
				t.Errorf("local traffic is %s, want %s", got, test.local)
			}
		})
	}
}

// TestPlanSwitches passes boolean flags to the plan.
func TestPlanSwitches(t *testing.T) {
	for _, on := range []bool{false, true} {
		options, err := PlanOptions(configOf(t, fmt.Sprint("--masquerade-all=", on)), features.Read(map[string]bool{"AllowServiceExternalIPs": on, "KeepTerminatingUDPFlows": on}).Gate)
		if err != nil {
			t.Fatal(err)
		}
		if options.MasqueradeAll != on || options.ServeExternalIPs != on || options.KeepTerminatingUDPFlows != on {
			t.Errorf("%v: %+v", on, options)
		}
	}
}

// TestConnectionLimits passes the bounds of namespaces to the plan, with the feature gate.
func TestConnectionLimits(t *testing.T) {
	cfg := configOf(t)
	cfg.ConnectionLimits = []config.ConnectionLimits{{Namespace: "a", PerSecond: 1, Open: 2, ClientPerSecond: 3, ClientOpen: 4}, {Namespace: "*"}}
	options, err := PlanOptions(cfg, features.Read(map[string]bool{"ServiceLimits": true}).Gate)
	if err != nil {
		t.Fatal(err)
	}
	want := plan.Fences{On: true, Namespaces: map[string]cluster.Fence{"a": {PerSecond: 1, Open: 2, ClientPerSecond: 3, ClientOpen: 4}, plan.OtherNamespaces: {}}}
	if diff := cmp.Diff(want, options.Fences); diff != "" {
		t.Error(diff)
	}
}

// TestFastPathOfAll passes the setting to the plan, with the feature gate.
func TestFastPathOfAll(t *testing.T) {
	cfg := configOf(t, "--proxy-mode=nftables")
	cfg.NFTables.FastPath = config.FastPathAll
	options, err := PlanOptions(cfg, features.Read(map[string]bool{"FlowtableFastPath": true}).Gate)
	if err != nil || options.FastPath != (plan.FastPath{On: true, All: true}) {
		t.Errorf("%+v, %v", options, err)
	}
}

// TestFieldsNeedGates refuses the fields of alpha features, in modes that have them, unless their feature gates are on.
func TestFieldsNeedGates(t *testing.T) {
	for _, test := range []struct{ mode, fields, gate, field string }{
		{"nftables", "connectionLimits: [{namespace: a, open: 1}]", "ServiceLimits", "connectionLimits"},
		{"nftables", "nftables: {fastPath: All}", "FlowtableFastPath", "nftables.fastPath"},
		{"nftables", "nftables: {fastPath: Annotated}", "", ""},
		{"iptables", "nftables: {fastPath: All}", "", ""},
	} {
		for _, on := range []bool{false, true} {
			text := "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\nmode: " + test.mode + "\n" + test.fields + "\n"
			if on && test.gate != "" {
				text += "featureGates: {" + test.gate + ": true}\n"
			}
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			loaded, err := load(t, "--config="+file)
			if err == nil {
				err = loaded.Validate("linux")
			}
			want := !on && test.gate != ""
			if (err != nil) != want || want && (!strings.Contains(err.Error(), test.field) || !strings.Contains(err.Error(), "featureGates: {"+test.gate+": true}")) {
				t.Errorf("%+v, on %t: %v", test, on, err)
			}
		}
	}
}

// TestLargestLimits checks that a configuration and an annotation allow the same numbers.
func TestLargestLimits(t *testing.T) {
	cfg := configOf(t)
	for _, test := range []struct {
		limits config.ConnectionLimits
		valid  bool
	}{
		{config.ConnectionLimits{PerSecond: cluster.MaxRate, ClientPerSecond: cluster.MaxRate, Open: cluster.MaxOpen, ClientOpen: cluster.MaxOpen}, true},
		{config.ConnectionLimits{PerSecond: cluster.MaxRate + 1}, false},
		{config.ConnectionLimits{ClientPerSecond: cluster.MaxRate + 1}, false},
		{config.ConnectionLimits{Open: cluster.MaxOpen + 1}, false},
		{config.ConnectionLimits{ClientOpen: cluster.MaxOpen + 1}, false},
	} {
		test.limits.Namespace = "a"
		cfg.ConnectionLimits = []config.ConnectionLimits{test.limits}
		if errs := config.Validate(cfg, features.Read(nil).Gate); (len(errs) == 0) != test.valid {
			t.Errorf("%+v: %v", test.limits, errs)
		}
	}
}

// TestLoopback checks what each mode does with node ports on loopback addresses.
func TestLoopback(t *testing.T) {
	both := []cluster.Family{cluster.IPv4, cluster.IPv6}
	for _, test := range []struct {
		flags  []string
		gate   bool
		routed bool
		want   plan.Localhost
	}{
		{[]string{"--proxy-mode=iptables"}, true, true, plan.Localhost{}},
		{[]string{"--proxy-mode=iptables", "--iptables-localhost-nodeports=false"}, true, false, plan.Localhost{}},
		{[]string{"--proxy-mode=nftables"}, false, false, plan.Localhost{}},
		{[]string{"--proxy-mode=nftables"}, true, false, plan.Localhost{Reject: true}},
		{[]string{"--proxy-mode=nftables", "--nodeport-addresses=localhost"}, true, false, plan.Localhost{Reject: true, Forwarded: both}},
	} {
		options, err := PlanOptions(configOf(t, test.flags...), features.Read(map[string]bool{"KubeProxyNFTablesLocalhostNodePorts": test.gate}).Gate)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, options.Localhost); diff != "" || options.NodePorts.Loopback != test.routed {
			t.Errorf("%v, gate %t: routed is %t, and (-want +got):\n%s", test.flags, test.gate, options.NodePorts.Loopback, diff)
		}
	}
}

// TestConntrackSettings passes each flag of connection tracking to its setting.
func TestConntrackSettings(t *testing.T) {
	got := *conntrackSettings(&configOf(t, "--conntrack-max-per-core=1", "--conntrack-min=2", "--conntrack-tcp-timeout-established=3s",
		"--conntrack-tcp-timeout-close-wait=4s", "--conntrack-tcp-be-liberal", "--conntrack-udp-timeout=5s", "--conntrack-udp-timeout-stream=6s").Linux.Conntrack)
	want := node.Conntrack{MaxPerCore: 1, Min: 2, TCPEstablished: 3 * time.Second, TCPCloseWait: 4 * time.Second, TCPBeLiberal: true,
		UDP: 5 * time.Second, UDPStream: 6 * time.Second}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
