package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// withExternalIPs is a cluster of 200 Services, of which every tenth has an external IP beside an acknowledged address.
func withExternalIPs() *cluster.Snapshot {
	c := newSized(200, 2)
	for n := 0; n < 200; n += 10 {
		s, _ := c.services.Get(nameAt(n))
		changed := *s
		changed.LoadBalancerIPs = []netip.Addr{addrAt(203<<24, n)}
		changed.ExternalIPs = []netip.Addr{addrAt(198<<24, n)}
		c.services.Set(changed.Name, &changed)
	}
	return &cluster.Snapshot{Services: c.services.Map(), Node: &cluster.Node{}}
}

// changedLines are the lines that only one of two dumps has.
func changedLines(before, after string) []string {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]--
	}
	for line := range strings.Lines(after) {
		count[line]++
	}
	var changed []string
	for line, n := range count {
		if n != 0 {
			changed = append(changed, strings.TrimSpace(line))
		}
	}
	return changed
}

// TestGateRestart restarts from one value of AllowServiceExternalIPs to the other, both ways: just the rules of external
// IPs come and go, and tables that have known them are the same as ones that never have.
func TestGateRestart(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		snapshot := withExternalIPs()
		off := plan.Compute(snapshot, &plan.Options{}, nil)
		on := plan.Compute(snapshot, &plan.Options{ServeExternalIPs: true}, nil)
		b, doors := fakes(variant)
		sync(t, b, off)
		never := doors[0].Dump()
		if strings.Contains(never, "-d 198.") {
			t.Fatalf("an external IP is in the tables:\n%s", never)
		}
		before := never
		for _, next := range []*plan.Plan{on, off, on} {
			b = restarted(doors)
			sync(t, b, next)
			holds(t, b, next)
			after := doors[0].Dump()
			changed := changedLines(before, after)
			if len(changed) < 20 {
				t.Errorf("%d rules changed, want one for each external IP at least", len(changed))
			}
			for _, line := range changed {
				if !strings.Contains(line, "-d 198.") {
					t.Errorf("the restart changed what is no external IP's: %s", line)
				}
			}
			if next == off && after != never {
				t.Errorf("something is left over: %q", changedLines(never, after))
			}
			before = after
		}
	})
}

// TestGateWithoutEndpoints does the same where external IPs would be refused.
func TestGateWithoutEndpoints(t *testing.T) {
	snapshot := withExternalIPs()
	services := snapshot.Services.Edit()
	for name, s := range snapshot.Services.All() {
		bare := *s
		bare.Slices = nil
		services.Set(name, &bare)
	}
	bare := &cluster.Snapshot{Services: services.Map(), Node: snapshot.Node}
	b, doors := fakes(ipt.NFT)
	off := plan.Compute(bare, &plan.Options{}, nil)
	sync(t, b, off)
	never := doors[0].Dump()
	sync(t, restarted(doors), plan.Compute(bare, &plan.Options{ServeExternalIPs: true}, nil))
	if refused := strings.Count(doors[0].Dump(), "-d 198."); refused < 20 {
		t.Errorf("with the gate on, %d external IPs without endpoints are refused, want 20", refused)
	}
	sync(t, restarted(doors), off)
	if after := doors[0].Dump(); after != never || strings.Contains(after, "-d 198.") {
		t.Errorf("something is left over: %q", changedLines(never, after))
	}
}
