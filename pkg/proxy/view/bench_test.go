package view

import (
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// sized is a cluster of 10,000 Services with two endpoints each, as it was and with one endpoint replaced.
func sized() (one, other *proxy.Sync) {
	c := clusters.NewSized(10_000, 2)
	take := func() *proxy.Sync {
		return &proxy.Sync{
			After: &cluster.Snapshot{Services: c.Services.Map(), Node: &cluster.Node{Name: "n"}}, Plan: c.Plan(),
			Results: []backend.Result{{Family: cluster.IPv4}}, Finished: time.Now(),
		}
	}
	one = take()
	c.Set(5000, -2)
	return one, take()
}

// BenchmarkSynced records syncs that change one endpoint of 10,000 Services with two endpoints each.
func BenchmarkSynced(b *testing.B) {
	one, other := sized()
	o := New(Config{Node: "n"})
	var history proxy.History
	o.Synced(history.Add(one))
	b.ReportAllocs()
	for b.Loop() {
		one, other = other, one
		o.Synced(history.Add(one))
	}
}

// BenchmarkServices describes 10,000 Services with two endpoints each.
func BenchmarkServices(b *testing.B) {
	one, _ := sized()
	s := &status.State{Snapshot: one.After, Plan: one.Plan, Info: v1alpha1.Info{Started: new(time.Time)}}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for range s.Services(status.Filter{}, nil) {
			n++
		}
		if n != 10_000 {
			b.Fatalf("%d Services", n)
		}
	}
}
