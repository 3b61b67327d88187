// Package contest reports Services that are not served on an address, protocol and port because another Service claims
// the same. The plan decides which one is served; this package logs the other one and publishes an Event about it, once
// for each contest.
package contest

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// maxListed is the number of frontends that one message names at most.
const maxListed = 8

// Watcher tracks contested frontends. It is a proxy.Observer.
type Watcher struct {
	proxy.Ignore
	recorder proxy.Recorder
	logger   klog.Logger
}

var _ proxy.Observer = (*Watcher)(nil)

// New returns a Watcher.
func New(recorder proxy.Recorder, logger klog.Logger) *Watcher {
	return &Watcher{recorder: recorder, logger: logger}
}

// Synced reports the contests that are new. Its cost is proportional to what changed.
func (w *Watcher) Synced(s *proxy.Sync) {
	var losers []cluster.ServiceName
	for _, change := range s.Changes.Contested {
		if !change.Is {
			continue
		}
		for route := range lost(change.Before, change.After) {
			losers = append(losers, route.Service)
		}
	}
	for name, change := range s.Changes.Decisions {
		if change.Was && change.Is && change.Before.UID != change.After.UID { // deleted and created again
			losers = append(losers, name)
		}
	}
	slices.SortFunc(losers, cluster.ServiceName.Compare)
	for _, name := range slices.Compact(losers) {
		w.report(name, s.Plan)
	}
}

// lost returns the routes that newly lost: all that are not served, or those that were added if the same one was served before.
// before may be nil.
func lost(before, after *plan.Claims) iter.Seq[*plan.Route] {
	served := after.Served()
	if before == nil || before.Served().Service != served.Service || before.Served().Kind != served.Kind {
		return after.Lost()
	}
	return func(yield func(*plan.Route) bool) {
		for _, change := range cluster.Changes(before.Routes, after.Routes) {
			if change.Is && !change.Was && change.After != served && !yield(change.After) {
				return
			}
		}
	}
}

// report reports all frontends of a Service that are not served, if any. Its text depends only on the plan, so that a
// restarted process publishes the same Event, and the API server can detect the duplicate.
func (w *Watcher) report(name cluster.ServiceName, p *plan.Plan) {
	service, _ := p.Services.Get(name)
	var lost []string
	for _, problem := range p.Problems(name, nil) {
		if problem.Reason == plan.ProblemContested {
			lost = append(lost, problem.Message)
		}
	}
	if len(lost) == 0 {
		return
	}
	all := strings.Join(lost, "; ")
	if more := len(lost) - maxListed; more > 0 {
		lost = append(lost[:maxListed], fmt.Sprintf("and %d more", more))
	}
	named := strings.Join(lost, "; ")
	w.logger.Info("Service shares addresses with other Services and is not served on them", "service", name, "addresses", named)
	w.recorder.Event(proxy.Event{
		Kind: "Service", Namespace: name.Namespace, Name: name.Name, UID: service.UID,
		Warning: true, Reason: plan.ProblemContested, Action: "ServeAddress", Once: all,
		Message: fmt.Sprintf("Other Services have the same address, protocol and port: %s. Give one of them another address or port.", named),
	})
}
