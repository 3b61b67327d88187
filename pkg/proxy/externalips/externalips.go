// Package externalips makes visible which Services ask for external IPs, and whether they are served: anybody who may
// write a Service can set spec.externalIPs, and nobody acknowledges it (CVE-2020-8554), so that by default the plan
// leaves them out. This package decides nothing; it tells what the plan decided, in the log, in numbers and in Events.
package externalips

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Config is what a Watcher is made of.
type Config struct {
	// Recorder publishes the Event of a Service whose external IPs are not served.
	Recorder proxy.Recorder
	// Counted is told, after every sync, how many Services have external IPs that are served and that are not.
	Counted func(served, ignored int)
	Logger  klog.Logger
}

// Watcher follows the Services that ask for external IPs. It is a proxy.Observer.
type Watcher struct {
	config Config
	begun  bool
	// seen and planned are those of the last sync.
	seen    cluster.Map[cluster.ServiceName, *cluster.Service]
	planned cluster.Map[cluster.ServiceName, *plan.Service]
	// served and ignored count Services.
	served, ignored int
}

// New makes a Watcher that has seen nothing yet.
func New(config Config) *Watcher { return &Watcher{config: config} }

// Synced tells what the plan decided. Its cost follows what changed.
func (w *Watcher) Synced(s *proxy.Sync) {
	for name, change := range cluster.Changes(w.seen, s.After.Services) {
		w.count(change.Before, w.planned, -1)
		w.count(change.After, s.Plan.Services, +1)
		if isNew(change.Before, change.After) && withheld(name, s.Plan.Services) {
			w.config.Recorder.Event(ignored(change.After))
		}
	}
	w.seen, w.planned = s.After.Services, s.Plan.Services
	w.config.Counted(w.served, w.ignored)
	if !w.begun {
		w.begun = true
		w.begin()
	}
}

// begin tells at the start what an operator had better know.
func (w *Watcher) begin() {
	if w.served > 0 {
		w.config.Logger.Info("Serving external IPs, which nobody acknowledged: whoever may write Services can draw other people's traffic (CVE-2020-8554). "+
			"This is deprecated; move away from spec.externalIPs while the feature gate AllowServiceExternalIPs is there", "services", w.served)
		return
	}
	if w.ignored == 0 {
		return
	}
	w.config.Logger.Info("External IPs of Services are not served, since nobody acknowledged them (CVE-2020-8554). "+
		`"kube-proxy audit" tells what to write instead; the feature gate AllowServiceExternalIPs serves them for a while`, "services", w.ignored)
}

// count adds n to the number that a Service belongs to. It may be nil.
func (w *Watcher) count(s *cluster.Service, planned cluster.Map[cluster.ServiceName, *plan.Service], n int) {
	switch {
	case s == nil || len(s.ExternalIPs) == 0:
	case withheld(s.Name, planned):
		w.ignored += n
	default:
		w.served += n
	}
}

// withheld tells whether the plan leaves a Service's external IPs out.
func withheld(name cluster.ServiceName, planned cluster.Map[cluster.ServiceName, *plan.Service]) bool {
	decided, ok := planned.Get(name)
	return ok && decided.WithheldExternalIPs > 0
}

// isNew tells whether a Service asks for other external IPs than before. Either may be nil.
func isNew(before, now *cluster.Service) bool {
	if now == nil || len(now.ExternalIPs) == 0 {
		return false
	}
	return before == nil || before.UID != now.UID || !slices.Equal(sorted(before.ExternalIPs), sorted(now.ExternalIPs))
}

// ignored is the Event of a Service whose external IPs are not served. It is the same for the same addresses, whoever
// finds it and how often.
func ignored(s *cluster.Service) proxy.Event {
	addrs := strings.Trim(fmt.Sprint(sorted(s.ExternalIPs)), "[]")
	return proxy.Event{
		Kind: "Service", Namespace: s.Name.Namespace, Name: s.Name.Name, UID: s.UID,
		Warning: true, Reason: "ExternalIPsIgnored", Action: "ServeExternalIPs", Once: addrs,
		Message: fmt.Sprintf("spec.externalIPs is not served, since nobody acknowledged it (CVE-2020-8554): %s. "+
			"Use a Service of type LoadBalancer, a Gateway or an Ingress; \"kube-proxy audit\" tells what to write.", addrs),
	}
}

func sorted(addrs []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
}
