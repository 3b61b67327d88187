package app

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
)

func TestMachineFamilies(t *testing.T) {
	file := func(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }
	for _, test := range []struct {
		name string
		proc fstest.MapFS
		want string
	}{
		{"both", fstest.MapFS{"net/if_inet6": file(""), "sys/net/ipv6/conf/all/disable_ipv6": file("0\n")}, "[IPv4 IPv6]"},
		{"IPv6 switched off", fstest.MapFS{"net/if_inet6": file(""), "sys/net/ipv6/conf/all/disable_ipv6": file("1\n")}, "[IPv4]"},
		{"a kernel without IPv6", fstest.MapFS{}, "[IPv4]"},
		{"no such setting", fstest.MapFS{"net/if_inet6": file("")}, "[IPv4]"},
	} {
		if got := fmt.Sprintf("%v", machineFamilies(test.proc)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestServedFamilies(t *testing.T) {
	both, one := []cluster.Family{cluster.IPv4, cluster.IPv6}, []cluster.Family{cluster.IPv4}
	for _, test := range []struct {
		policy  config.IPFamilyPolicy
		primary cluster.Family
		machine []cluster.Family
		want    string // families, or a part of the error
	}{
		{"", cluster.IPv4, both, "[IPv4 IPv6]"},
		{"", cluster.IPv6, both, "[IPv6 IPv4]"},
		{"", cluster.IPv4, one, "[IPv4]"},
		{"", cluster.IPv6, one, "primary address is of family IPv6"},
		{config.IPFamilyPolicyPreferDualStack, cluster.IPv4, one, "[IPv4]"},
		{config.IPFamilyPolicyRequireDualStack, cluster.IPv4, both, "[IPv4 IPv6]"},
		{config.IPFamilyPolicyRequireDualStack, cluster.IPv4, one, "ipFamilyPolicy is RequireDualStack, and this machine does not have IPv6"},
		{config.IPFamilyPolicySingleStack, cluster.IPv4, both, "[IPv4]"},
		{config.IPFamilyPolicySingleStack, cluster.IPv6, both, "[IPv6]"},
		{config.IPFamilyPolicySingleStack, cluster.IPv6, one, "primary address is of family IPv6"},
	} {
		got, err := servedFamilies(test.policy, test.primary, test.machine)
		if err == nil && fmt.Sprintf("%v", got) != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("policy %q, primary %s, machine %v: got %v, %v; want %s", test.policy, test.primary, test.machine, got, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "%!") {
			t.Errorf("the error is badly made: %v", err)
		}
	}
}

func TestCheckFamilies(t *testing.T) {
	both, one := []cluster.Family{cluster.IPv4, cluster.IPv6}, []cluster.Family{cluster.IPv4}
	for _, test := range []struct {
		name     string
		change   func(*config.KubeProxyConfiguration)
		podCIDR  string
		families []cluster.Family
		doubtful int
		fatal    int
		fails    bool
	}{
		{name: "nothing wrong", families: both},
		{name: "a cluster CIDR of a family that is not there", families: one, doubtful: 1,
			change: func(c *config.KubeProxyConfiguration) {
				c.DetectLocal.ClusterCIDRs = []string{"10.0.0.0/8", "fd00::/8"}
			}},
		{name: "the same, and hard fail", families: one, fatal: 1,
			change: func(c *config.KubeProxyConfiguration) {
				c.DetectLocal.ClusterCIDRs, c.ConfigHardFail = []string{"10.0.0.0/8", "fd00::/8"}, true
			}},
		{name: "no cluster CIDR that is any good", families: one, fatal: 1,
			change: func(c *config.KubeProxyConfiguration) { c.DetectLocal.ClusterCIDRs = []string{"fd00::/8"} }},
		{name: "node ports of one family", families: both, doubtful: 1,
			change: func(c *config.KubeProxyConfiguration) { c.NodePortAddresses = []string{"192.0.2.0/24"} }},
		{name: "pod CIDRs", families: one, podCIDR: "10.244.1.0/24"},
		{name: "pod CIDRs of the other family", families: one, podCIDR: "fd00::/64", fails: true},
		{name: "pod CIDRs of one of both families", families: both, podCIDR: "fd00::/64"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := newOptions().flags
			if test.change != nil {
				test.change(cfg)
			}
			identity := node.Identity{}
			if test.podCIDR != "" {
				identity.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(test.podCIDR)}
			}
			doubtful, fatal, err := checkFamilies(cfg, identity, test.families)
			if len(doubtful) != test.doubtful || len(fatal) != test.fatal || (err != nil) != test.fails {
				t.Errorf("doubtful %v, fatal %v, error %v", doubtful, fatal, err)
			}
		})
	}
}

func TestNodeIPOverride(t *testing.T) {
	cfg := newOptions().flags
	cfg.NodeIPOverride = []string{"010.0.0.1", "2001:db8::1"}
	if got, err := nodeIPOverride(cfg); err != nil || fmt.Sprint(got) != "[10.0.0.1 2001:db8::1]" {
		t.Errorf("%v, %v", got, err)
	}
	cfg.NodeIPOverride = []string{"x"}
	if _, err := nodeIPOverride(cfg); err == nil || !strings.Contains(err.Error(), `nodeIPOverride: "x"`) {
		t.Errorf("%v", err)
	}
}

func TestLoopbackFamilies(t *testing.T) {
	for entries, want := range map[string]string{
		"":                        "[]",
		"primary all":             "[]",
		"0.0.0.0/0 ::/0":          "[]",
		"192.0.2.0/24":            "[]",
		"127.0.0.5/32":            "[]",
		"localhost":               "[IPv4 IPv6]",
		"primary localhost":       "[IPv4 IPv6]",
		"127.0.0.0/8":             "[IPv4]",
		"127.0.0.1/32 10.0.0.0/8": "[IPv4]",
		"::1/128":                 "[IPv6]",
	} {
		if got := fmt.Sprintf("%v", loopbackFamilies(strings.Fields(entries))); got != want {
			t.Errorf("%q: got %s, want %s", entries, got, want)
		}
	}
}
