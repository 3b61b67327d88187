//go:build linux

package nf_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelFilterChains reads base chains of nft and of iptables, in every family, and ignores those that are not of type filter.
func TestKernelFilterChains(t *testing.T) {
	netns.Enter(t, "nft", "iptables-nft")
	if chains, err := nf.FilterChains(t.Context()); err != nil || len(chains) > 0 {
		t.Errorf("in an empty network namespace: %v, %v", chains, err)
	}
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(`
table inet guard {
  chain forward { type filter hook forward priority 0; policy drop; ct state established accept; counter accept; }
  chain input { type filter hook input priority 0; policy accept; counter accept; }
  chain plain { counter accept; }
}
table ip6 other {
  chain pre { type filter hook prerouting priority 0; policy drop; }
  chain nat { type nat hook postrouting priority 100; }
}
`)
	for _, c := range []*exec.Cmd{command, exec.Command("iptables-nft", "-P", "FORWARD", "DROP")} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", c.Args, err, out)
		}
	}
	chains, err := nf.FilterChains(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var dropping []nf.FilterChain
	for _, chain := range chains {
		if chain.Drops || chain.Table == "guard" {
			dropping = append(dropping, chain)
		}
	}
	if diff := cmp.Diff([]nf.FilterChain{
		{Family: "ip", Table: "filter", Name: "FORWARD", Hook: "forward", Drops: true},
		{Family: "ip6", Table: "other", Name: "pre", Hook: "prerouting", Drops: true},
		{Family: "inet", Table: "guard", Name: "forward", Hook: "forward", Drops: true, Rules: 2},
		{Family: "inet", Table: "guard", Name: "input", Hook: "input"},
	}, dropping); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
