//go:build linux

package restart

import (
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
)

// TestKernelLoopbackAfterSwitch lets iptables mode accept packets to 127.0.0.0/8, for node ports, and sends such packets from a
// neighbour and from a pod: none arrives in iptables mode, none in nftables mode after that, although somebody flushes all rules
// between the two, as a restart of the service nftables does. --cleanup says that the setting stays, and after iptables mode so do its rules.
func TestKernelLoopbackAfterSwitch(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			n := newNode(t, r.lab.Node1.Host, variant)
			_, nodePort := address(0)
			var intruders *backendtest.Intruders
			serving := func(mode, other string) {
				t.Helper()
				r.start(mode)
				r.serves(probes)
				if !n.onlyIn(mode, other) {
					t.Fatalf("in mode %s the node has\n%s\n%s", mode, n.rules(), r.log.String())
				}
				if intruders == nil {
					if value := n.must("cat", "/proc/sys/net/ipv4/conf/all/route_localnet"); value != "1\n" {
						t.Fatalf("route_localnet is %q", value)
					}
					intruders = backendtest.NewIntruders(t, r.lab, nodePort)
				}
			}
			closed := func(when string) {
				t.Helper()
				for _, passed := range intruders.Passed(t, 0) {
					t.Errorf("%s: %s", when, passed)
				}
			}
			cleaned := func() {
				t.Helper()
				if err := r.proxy.Kill(); err != nil {
					t.Fatal(err)
				}
				out, err := r.cleanup()
				if err != nil || !strings.Contains(out, "KUBE-FIREWALL") || !strings.Contains(out, "net.ipv4.conf.all.route_localnet=0") {
					t.Errorf("--cleanup: %v, and does not say what stays: %s", err, out)
				}
			}
			serving(iptables, nftables)
			closed("in iptables mode")
			cleaned()
			closed("after --cleanup in iptables mode")
			n.must("nft", "flush ruleset; add table inet foreign")
			for _, table := range []string{"filter", "nat"} {
				n.must("iptables-legacy", "-w", "-t", table, "-F")
			}
			if passed := intruders.Passed(t, 12); len(passed) != 12 {
				t.Errorf("without rules, these pass: %q", passed)
			}
			serving(nftables, iptables)
			closed("in nftables mode")
			cleaned()
		})
	}
}
