// Package observers runs an observer of the sync loop against a small cluster, for the observer's tests.
package observers

import (
	"bytes"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Cluster is a cluster of Services that one observer follows. It is a proxy.Recorder for that observer.
type Cluster struct {
	// Observer is called after every sync. A test sets it first.
	Observer proxy.Observer
	Options  plan.Options
	Services cluster.Map[cluster.ServiceName, *cluster.Service]
	// Events are the published Events, and Log is the log. A test may clear both.
	Events  []proxy.Event
	Log     bytes.Buffer
	plan    *plan.Plan
	history proxy.History
}

// Event appends to Events.
func (c *Cluster) Event(e proxy.Event) { c.Events = append(c.Events, e) }

// Logger returns a logger that writes to Log.
func (c *Cluster) Logger() klog.Logger {
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&c.Log)))
}

// Set adds or replaces a Service, and syncs.
func (c *Cluster) Set(s *cluster.Service) {
	c.Services = c.Services.Set(s.Name, s)
	c.Sync()
}

// Delete removes a Service, and syncs.
func (c *Cluster) Delete(name cluster.ServiceName) {
	c.Services = c.Services.Delete(name)
	c.Sync()
}

// Sync computes the next plan, and calls the observer with it.
func (c *Cluster) Sync() {
	snapshot := &cluster.Snapshot{Services: c.Services, Node: &cluster.Node{}}
	c.plan = plan.Compute(snapshot, &c.Options, c.plan)
	c.Observer.Synced(c.history.Add(&proxy.Sync{After: snapshot, Plan: c.plan, Results: []backend.Result{{Family: cluster.IPv4}, {Family: cluster.IPv6}}}))
}
