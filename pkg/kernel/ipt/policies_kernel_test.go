package ipt

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelPolicies reads the policies of the legacy variant without a program, and checks that no table is created.
func TestKernelPolicies(t *testing.T) {
	for family, program := range map[Family]string{IPv4: "iptables-legacy", IPv6: "ip6tables-legacy"} {
		t.Run(program, func(t *testing.T) { testPolicies(t, family, program) })
	}
}

func testPolicies(t *testing.T, family Family, program string) {
	netns.Enter(t, program)
	if policies, err := Policies(t.Context(), family); policies != nil || err != nil || legacyTableExists(family, "filter") {
		t.Errorf("without a table: %v, %v", policies, err)
	}
	for _, args := range []string{"-N OTHER", "-A OTHER -j ACCEPT", "-P FORWARD DROP", "-A FORWARD -j OTHER", "-A FORWARD -i lo -j ACCEPT"} {
		if out, err := exec.Command(program, append([]string{"-w"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Setenv("PATH", "")
	policies, err := Policies(t.Context(), family)
	if diff := cmp.Diff(map[string]Policy{"INPUT": {}, "FORWARD": {Drops: true, Rules: 2}}, policies); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
