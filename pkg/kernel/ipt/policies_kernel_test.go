package ipt

import (
	"os/exec"
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
	if out, err := exec.Command("iptables-legacy", "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	policies, err := Policies(t.Context(), IPv4)
	if diff := cmp.Diff(map[string]Policy{"INPUT": {}, "OUTPUT": {}, "FORWARD": {Drops: true}}, policies); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
