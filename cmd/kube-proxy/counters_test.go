//go:build linux

package main

import (
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelCounters connects to a node port on localhost in iptables mode: the metrics count the connections,
// also after a restart, and in either variant of iptables. In nftables mode there are no such metrics.
func TestKernelCounters(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	for _, test := range []struct {
		name string
		mode config.ProxyMode
		// legacy leaves a kubelet's hint that the node uses that variant.
		legacy      bool
		connections int
		// accepted and dropped are the values of the metrics then.
		accepted, dropped string
	}{
		{"nft", "iptables", false, 3, "3", "0"},
		{"restarted", "iptables", false, 2, "5", "0"},
		{"nftables", "nftables", false, 0, "", ""},
		{"legacy", "iptables", true, 4, "4", "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			if test.legacy {
				out, err := w.lab.Node1.Command("iptables-legacy", "-w", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT").CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			w.proxy(test.mode)
			probe := netns.Probe{From: w.lab.Node1.Host, To: netip.MustParseAddrPort("127.0.0.1:30080"), Protocol: netns.TCP}
			if tally := probe.Spread(test.connections); tally.Failed() > 0 {
				t.Errorf("%s: %s", probe, tally)
			}
			for sample, want := range map[string]string{
				"kubeproxy_iptables_localhost_nodeports_accepted_packets_total": test.accepted,
				"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":     test.dropped,
			} {
				if got := w.metric(sample); got != want {
					t.Errorf("%s is %q, want %q", sample, got, want)
				}
			}
		})
	}
}
