package nftables_test

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/cases"
)

// TestKernelLoopback sends packets to the loopback addresses of a node from a neighbour and from a pod, while the kernel accepts
// them because another program, or iptables mode, has set route_localnet: without rules they arrive, with rules none does, also
// after the rules were flushed and repaired. What other programs translate still arrives.
func TestKernelLoopback(t *testing.T) {
	t.Parallel()
	p := cases.Of(t, "../../../../test/cases", "node-port", cluster.IPv4).Plan()
	b := backendtest.NewBench(t, open)
	intruders := backendtest.NewIntruders(t, b.Lab, 30080)
	if passed := intruders.Passed(t, 12); len(passed) != 12 {
		t.Fatalf("without rules, these pass: %q", passed)
	}
	for _, when := range []string{"at first", "after a flush"} {
		b.Sync(t, p)
		for _, passed := range intruders.Passed(t, 0) {
			t.Errorf("%s: %s", when, passed)
		}
		intruders.CheckOthers(t)
		if out, err := b.Lab.Node1.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_ = b.Lab.Node1.Do(func() error { _, err := b.Backend.Check(t.Context()); return err })
	}
}

// TestKernelLoops sends packets that would come back.
func TestKernelLoops(t *testing.T) {
	t.Parallel()
	backendtest.Loops(t, "../../../../test/cases", open)
}
