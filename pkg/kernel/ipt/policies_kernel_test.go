package ipt

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelPolicies reads the policies of the legacy variant, and checks that no table is created.
func TestKernelPolicies(t *testing.T) {
	netns.Enter(t, "iptables-legacy", "iptables-legacy-save")
	if policies, err := Policies(t.Context(), IPv4); policies != nil || err != nil || legacyTableExists(IPv4, "filter") {
		t.Errorf("without a table: %v, %v", policies, err)
	}
	for _, args := range []string{"-N OTHER", "-A OTHER -j ACCEPT", "-P FORWARD DROP", "-A FORWARD -j OTHER", "-A FORWARD -i lo -j ACCEPT"} {
		if out, err := exec.Command("iptables-legacy", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	policies, err := Policies(t.Context(), IPv4)
	if diff := cmp.Diff(map[string]Policy{"INPUT": {}, "FORWARD": {Drops: true, Rules: 2}}, policies); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
