package iptables_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// selected returns the plan of a case with other addresses for node ports.
func selected(c *cases.Case, addresses plan.NodePortAddresses) *plan.Plan {
	options := *c.Options
	options.NodePorts = addresses
	return plan.Compute(c.Snapshot, &options, nil)
}

// TestKernelLoopback sends packets to the loopback addresses of a node from a neighbour and from a pod, while node ports are served
// on all addresses and on loopback addresses only: without rules they arrive, with rules none does, neither at a server of the
// node nor at a node port, also after the rules were flushed and repaired, and when the proxy has removed its rules. The node
// itself reaches both.
func TestKernelLoopback(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		c := case4(t, own, "localhost-node-ports")
		intruders := backendtest.NewIntruders(t, b.Lab, 30080)
		closed := func(when string) {
			t.Helper()
			for _, passed := range intruders.Passed(t, 0) {
				t.Errorf("%s: %s", when, passed)
			}
		}
		served := func(when string) {
			t.Helper()
			for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
				for port, by := range map[uint16]string{30080: "pod", 7000: b.Lab.Node1.Name} {
					probe := netns.Probe{From: b.Lab.Node1.Host, To: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), Protocol: protocol}
					if answer := probe.Send(); !strings.HasPrefix(answer.Endpoint, by) {
						t.Errorf("%s: %s: %s, want one of %s", when, probe, answer, by)
					}
				}
			}
		}
		if passed := intruders.Passed(t, 12); len(passed) != 12 {
			t.Fatalf("without rules, these pass: %q", passed)
		}
		for name, addresses := range map[string]plan.NodePortAddresses{
			"everywhere": {Loopback: true}, "localhost": {Loopback: true, CIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		} {
			p := selected(c, addresses)
			b.Sync(t, p)
			closed(name)
			served(name)
			for _, flushed := range []string{"-t filter -F", "-t nat -F"} {
				if out, err := b.Lab.Node1.Command("iptables-"+string(variant), append([]string{"-w"}, strings.Fields(flushed)...)...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				_ = b.Lab.Node1.Do(func() error { _, err := b.Backend.Check(t.Context()); return err })
				b.Sync(t, p)
				closed(name + ", after " + flushed)
			}
			served(name + ", repaired")
			intruders.CheckOthers(t)
		}
		if err := b.Lab.Node1.Do(func() error { return b.Backend.Cleanup(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		closed("after cleanup")
	})
}

// TestKernelLoops sends packets that would come back.
func TestKernelLoops(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) { backendtest.Loops(t, shared, opener(variant)) })
}
