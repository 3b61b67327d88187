package iptables

import (
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestGateRestart restarts with AllowServiceExternalIPs on and off again: only the rules of external IPs change, and
// the final tables equal those from before.
func TestGateRestart(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		snapshot := clusters.WithExternalIPs(200)
		off := plan.Compute(snapshot, &plan.Options{}, nil)
		on := plan.Compute(snapshot, &plan.Options{ServeExternalIPs: true}, nil)
		b, doors := fakes(t, variant)
		sync(t, b, off)
		never := doors[0].Dump()
		if strings.Contains(never, "-d 198.") {
			t.Fatalf("an external IP is in the tables:\n%s", never)
		}
		before := never
		for _, next := range []*plan.Plan{on, off, on} {
			b = restarted(t, doors)
			sync(t, b, next)
			holds(t, b, next)
			after := doors[0].Dump()
			changed := clusters.ChangedLines(before, after)
			if len(changed) < 20 {
				t.Errorf("%d rules changed, want at least one for each external IP", len(changed))
			}
			for _, line := range changed {
				if !strings.Contains(line, "-d 198.") {
					t.Errorf("the restart changed something other than external IPs: %s", line)
				}
			}
			if next == off && after != never {
				t.Errorf("not removed: %q", clusters.ChangedLines(never, after))
			}
			before = after
		}
	})
}

// TestGateWithoutEndpoints does the same for Services without endpoints, whose external IPs are refused.
func TestGateWithoutEndpoints(t *testing.T) {
	bare := clusters.WithoutEndpoints(clusters.WithExternalIPs(200))
	b, doors := fakes(t, ipt.NFT)
	off := plan.Compute(bare, &plan.Options{}, nil)
	sync(t, b, off)
	never := doors[0].Dump()
	sync(t, restarted(t, doors), plan.Compute(bare, &plan.Options{ServeExternalIPs: true}, nil))
	if refused := strings.Count(doors[0].Dump(), "-d 198."); refused < 20 {
		t.Errorf("with the gate on, %d external IPs without endpoints are refused, want 20", refused)
	}
	sync(t, restarted(t, doors), off)
	if after := doors[0].Dump(); after != never || strings.Contains(after, "-d 198.") {
		t.Errorf("not removed: %q", clusters.ChangedLines(never, after))
	}
}
