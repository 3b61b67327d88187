package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
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

// TestCheckFamilies distinguishes what cannot work on a machine from what may not be intended.
func TestCheckFamilies(t *testing.T) {
	both, one := []cluster.Family{cluster.IPv4, cluster.IPv6}, []cluster.Family{cluster.IPv4}
	for _, test := range []struct {
		name     string
		change   func(*config.KubeProxyConfiguration)
		families []cluster.Family
		checked  []int // the number of errors in each list that is checked
		fatal    bool
	}{
		{name: "nothing wrong", families: both, checked: []int{0, 0}},
		{name: "a cluster CIDR of a family that is not there", families: one, checked: []int{0, 1},
			change: func(c *config.KubeProxyConfiguration) {
				c.DetectLocal.ClusterCIDRs = []string{"10.0.0.0/8", "fd00::/8"}
			}},
		{name: "the same, and hard fail", families: one, checked: []int{1}, fatal: true,
			change: func(c *config.KubeProxyConfiguration) {
				c.DetectLocal.ClusterCIDRs, c.ConfigHardFail = []string{"10.0.0.0/8", "fd00::/8"}, true
			}},
		{name: "no cluster CIDR that is any good", families: one, checked: []int{1}, fatal: true,
			change: func(c *config.KubeProxyConfiguration) { c.DetectLocal.ClusterCIDRs = []string{"fd00::/8"} }},
		{name: "node ports of one family", families: both, checked: []int{0, 1},
			change: func(c *config.KubeProxyConfiguration) { c.NodePortAddresses = []string{"192.0.2.0/24"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := newOptions().flags
			if test.change != nil {
				test.change(cfg)
			}
			var checked []int
			opts := runOptions{check: func(errs field.ErrorList) error {
				checked = append(checked, len(errs))
				return errs.ToAggregate()
			}}
			err := checkFamilies(t.Context(), cfg, opts, test.families)
			if !slices.Equal(checked, test.checked) || (err != nil) != test.fatal {
				t.Errorf("%v errors, and %v; want %v", checked, err, test.checked)
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
