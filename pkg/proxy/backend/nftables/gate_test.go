package nftables

import (
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestGateRestart restarts with AllowServiceExternalIPs on and off again: only elements of external IPs change, no rule
// is written, and the final table equals the one from before.
func TestGateRestart(t *testing.T) {
	const services = 200
	snapshot := clusters.WithExternalIPs(services)
	off := plan.Compute(snapshot, &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}}, nil)
	on := plan.Compute(snapshot, &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}, ServeExternalIPs: true}, nil)

	b, tables := fakes()
	mustSync(t, b, off)
	never := tables[0].Dump()
	if strings.Contains(never, "198.0.0.") {
		t.Fatalf("an external IP is in the table:\n%s", never)
	}
	before := never
	for _, next := range []*plan.Plan{on, off, on} {
		b = newBackend(testOptions, b.families[0].table, b.families[1].table)
		elements, rules := mustSync(t, b, next)
		holds(t, b, next)
		// Each of two ports has its verdict and a slot for each of two endpoints.
		if want := services / 10 * 2 * (1 + 2); elements != want || rules != 0 {
			t.Errorf("the restart wrote %d elements and %d rules, want %d and 0", elements, rules, want)
		}
		after := tables[0].Dump()
		for _, line := range clusters.ChangedLines(before, after) {
			if !strings.Contains(line, "198.0.0.") {
				t.Errorf("the restart changed something other than external IPs: %s", line)
			}
		}
		if next == off && after != never {
			t.Errorf("not removed: %q", clusters.ChangedLines(never, after))
		}
		before = after
	}
}

// TestGateWithoutEndpoints does the same for Services without endpoints, whose external IPs are rejected or dropped.
func TestGateWithoutEndpoints(t *testing.T) {
	bare := clusters.WithoutEndpoints(clusters.WithExternalIPs(20))
	b, tables := fakes()
	off := plan.Compute(bare, &plan.Options{}, nil)
	mustSync(t, b, off)
	never := tables[0].Dump()
	b = newBackend(testOptions, b.families[0].table, b.families[1].table)
	if elements, rules := mustSync(t, b, plan.Compute(bare, &plan.Options{ServeExternalIPs: true}, nil)); elements != 2*2 || rules != 0 {
		t.Errorf("the gate wrote %d elements and %d rules, want 4 and 0", elements, rules)
	}
	if !strings.Contains(tables[0].Dump(), "198.0.0.10") {
		t.Error("the external IP of a Service without endpoints is not refused with the gate on")
	}
	b = newBackend(testOptions, b.families[0].table, b.families[1].table)
	mustSync(t, b, off)
	if after := tables[0].Dump(); after != never || strings.Contains(after, "198.0.0.") {
		t.Errorf("not removed: %q", clusters.ChangedLines(never, after))
	}
}
