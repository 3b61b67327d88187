package config_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// TestStartable checks which modes can be started on which platform.
func TestStartable(t *testing.T) {
	tests := []struct {
		mode config.ProxyMode
		goos string
		want string // in the error; empty means it can be started
	}{
		{"", "linux", ""},
		{"iptables", "linux", ""},
		{"nftables", "linux", ""},
		{"ipvs", "linux", "use nftables"},
		{"kernelspace", "linux", "Windows only"},
		{"", "windows", ""},
		{"kernelspace", "windows", ""},
		{"nftables", "windows", "use kernelspace"},
		{"ipvs", "windows", "no ipvs backend"},
	}
	for _, tt := range tests {
		errs := config.Startable(&config.KubeProxyConfiguration{Mode: tt.mode}, tt.goos)
		if got := words(errs); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("mode %q on %s: got %q, want %q", tt.mode, tt.goos, got, tt.want)
		}
	}
}

// TestCheckFamilies checks what is an error and what is a warning on a node that lacks a family.
func TestCheckFamilies(t *testing.T) {
	both, v4, v6 := config.Families{IPv4: true, IPv6: true}, config.Families{IPv4: true}, config.Families{IPv6: true}
	cidrs := func(cidrs ...string) config.KubeProxyConfiguration {
		return config.KubeProxyConfiguration{DetectLocal: config.DetectLocalConfiguration{ClusterCIDRs: cidrs}}
	}
	nodePorts := func(entries ...string) config.KubeProxyConfiguration {
		return config.KubeProxyConfiguration{NodePortAddresses: entries}
	}
	otherMode := cidrs("fd00::/8")
	otherMode.DetectLocalMode = config.LocalModeNodeCIDR
	single := nodePorts("10.0.0.0/8")
	single.IPFamilyPolicy, single.ConfigHardFail = config.IPFamilyPolicySingleStack, true
	hardFail := cidrs("10.0.0.0/8", "fd00::/8")
	hardFail.ConfigHardFail = true

	tests := []struct {
		name           string
		cfg            config.KubeProxyConfiguration
		use            config.Families
		errs, warnings string // what the messages contain; empty means none
	}{
		{"nothing said", config.KubeProxyConfiguration{}, v4, "", ""},
		{"both families said, both there", cidrs("10.0.0.0/8", "fd00::/8"), both, "", ""},
		{"both families said, one there", cidrs("10.0.0.0/8", "fd00::/8"), v4, "", "clusterCIDRs[1]"},
		{"both families said, one there, and configHardFail", hardFail, v4, "clusterCIDRs[1]", ""},
		{"only the missing family", cidrs("fd00::/8"), v4, "clusterCIDRs[0]", ""},
		{"only the missing family, IPv6 node", cidrs("10.0.0.0/8"), v6, "no IPv4", ""},
		{"one of two families", cidrs("10.0.0.0/8"), both, "", ""},
		{"CIDRs that are not used", otherMode, v4, "", ""},
		{"override of the missing family", config.KubeProxyConfiguration{NodeIPOverride: []string{"10.0.0.1", "fd00::1"}}, v4, "", "nodeIPOverride[1]"},
		{"NodePorts of one family", nodePorts("10.0.0.0/8"), both, "", "no entry for IPv6"},
		{"NodePorts of one family, one there", nodePorts("10.0.0.0/8"), v4, "", ""},
		{"NodePorts of the only family to be served", single, both, "", ""},
		{"NodePorts of another family than the only one", single, v6, "no entry for IPv6", ""},
		{"NodePorts of the missing family", nodePorts("10.0.0.0/8"), v6, "", "no entry for IPv6"},
		{"NodePorts of both by keyword", nodePorts("10.0.0.0/8", "primary"), both, "", ""},
	}
	for _, tt := range tests {
		errs, warnings := config.CheckFamilies(&tt.cfg, tt.use)
		if got := words(errs); (tt.errs == "") != (got == "") || !strings.Contains(got, tt.errs) {
			t.Errorf("%s: errors are %q, want %q", tt.name, got, tt.errs)
		}
		if got := words(warnings); (tt.warnings == "") != (got == "") || !strings.Contains(got, tt.warnings) {
			t.Errorf("%s: warnings are %q, want %q", tt.name, got, tt.warnings)
		}
	}
}

// words returns errors as one text; "" if there are none.
func words(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}
