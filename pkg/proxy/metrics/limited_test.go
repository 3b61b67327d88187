package metrics

import (
	"context"
	"testing"

	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestLimited follows a Service that gets bounds, and loses them.
func TestLimited(t *testing.T) {
	f := newCounting(t, NoConnections)
	read := 0
	f.kernel.reading = func(context.Context) { read++ }
	f.slice("a", "10.0.0.1", start)
	f.options.Fences.On = true
	f.syncAll()
	const of = `serviceproxy_service_connections_limited_total{service_name=a,service_namespace=ns}`
	absent := func() {
		t.Helper()
		if got := f.value(of); got != "none" {
			t.Errorf("without bounds: %s", got)
		}
	}
	absent()
	if read > 0 {
		t.Errorf("counters were read, although no Service has bounds")
	}
	bounds := func(fence *cluster.AskedFence) func(s *cluster.Service) {
		return func(s *cluster.Service) { s.Fence = fence }
	}
	f.change("a", bounds(&cluster.AskedFence{Fence: cluster.Fence{Open: 3}}))
	f.syncAll()
	f.expect(of + " 0")
	f.kernel.limited = map[string]uint64{"192.0.2.1": 5, "0.0.0.0": 2}
	f.expect(of + " 7")
	f.kernel.limited["192.0.2.1"] = 6
	f.change("a", bounds(&cluster.AskedFence{Fence: cluster.Fence{Open: 4}}))
	f.syncAll()
	f.expect(of + " 8")
	f.change("a", bounds(nil))
	f.syncAll()
	absent()
	f.change("a", bounds(&cluster.AskedFence{Fence: cluster.Fence{Open: 4}}))
	f.syncAll()
	f.expect(of + " 8")
}

// TestNothingToRead has no collector that would hold on to a plan.
func TestNothingToRead(t *testing.T) {
	f := newFixture(t)
	for _, limited := range []bool{false, true} {
		m := New(Config{Families: []cluster.Family{cluster.IPv4}, Snapshot: f.snapshot, Counter: f, Limited: limited}, metrics.NewKubeRegistry().MustRegister)
		if read := m.connections != nil; read != limited {
			t.Errorf("limited %t: counters are read: %t", limited, read)
		}
	}
}
