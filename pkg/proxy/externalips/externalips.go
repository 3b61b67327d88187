// Package externalips reports which Services have external IPs, and whether they are served. Any user who may write a
// Service can capture traffic with spec.externalIPs (CVE-2020-8554), so the plan leaves them out unless the feature gate
// AllowServiceExternalIPs is on. This package only reports the plan's decisions: in the log, in metrics and in Events.
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

// maxNamed is the number of addresses that one message names at most.
const maxNamed = 8

// Config configures a Watcher.
type Config struct {
	// Recorder publishes the Event of a Service whose external IPs are not served.
	Recorder proxy.Recorder
	// Counted is called after every sync with the number of Services whose external IPs are served, and of those
	// whose are not.
	Counted func(served, ignored int)
	Logger  klog.Logger
}

// Watcher tracks the Services with external IPs. It is a proxy.Observer.
type Watcher struct {
	proxy.Ignore
	config  Config
	started bool
	// served and ignored count Services.
	served, ignored int
}

var _ proxy.Observer = (*Watcher)(nil)

// New returns a Watcher that has not seen a sync yet.
func New(config Config) *Watcher { return &Watcher{config: config} }

// Synced reports the plan's decisions. Its cost is proportional to what changed.
func (w *Watcher) Synced(s *proxy.Sync) {
	for name, change := range s.Changes.Services {
		w.count(change.Before, s.Changes.Before.Services, -1)
		w.count(change.After, s.Plan.Services, +1)
		if isNew(change.Before, change.After) && withheld(name, s.Plan.Services) {
			w.config.Recorder.Event(ignored(change.After))
		}
	}
	w.config.Counted(w.served, w.ignored)
	if !w.started {
		w.started = true
		w.logStart()
	}
}

// logStart logs after the first sync whether external IPs are served.
func (w *Watcher) logStart() {
	if w.served > 0 {
		w.config.Logger.Info("Serving external IPs is deprecated: any user who may write Services can capture traffic with them (CVE-2020-8554)",
			"services", w.served, "hint", "stop using spec.externalIPs before the feature gate AllowServiceExternalIPs is removed")
		return
	}
	if w.ignored == 0 {
		return
	}
	w.config.Logger.Info("External IPs are not served because the feature gate AllowServiceExternalIPs is off (CVE-2020-8554)",
		"services", w.ignored, "hint", "kube-proxy audit suggests manifests to use instead")
}

// count adds n to the number of served or ignored Services. s may be nil.
func (w *Watcher) count(s *cluster.Service, planned cluster.Map[cluster.ServiceName, *plan.Service], n int) {
	switch {
	case s == nil || len(s.ExternalIPs()) == 0:
	case withheld(s.Name, planned):
		w.ignored += n
	default:
		w.served += n
	}
}

// withheld reports whether the plan leaves out a Service's external IPs.
func withheld(name cluster.ServiceName, planned cluster.Map[cluster.ServiceName, *plan.Service]) bool {
	decided, ok := planned.Get(name)
	return ok && decided.WithheldExternalIPs > 0
}

// isNew reports whether a Service has other external IPs than before. Either may be nil.
func isNew(before, now *cluster.Service) bool {
	if now == nil || len(now.ExternalIPs()) == 0 {
		return false
	}
	return before == nil || before.UID != now.UID || !slices.Equal(sorted(before.ExternalIPs()), sorted(now.ExternalIPs()))
}

// ignored returns the Event of a Service whose external IPs are not served. It is the same for the same addresses, so
// that the proxies of all nodes publish it once.
func ignored(s *cluster.Service) proxy.Event {
	addrs := sorted(s.ExternalIPs())
	named := listed(addrs[:min(len(addrs), maxNamed)])
	if more := len(addrs) - maxNamed; more > 0 {
		named = fmt.Sprintf("%s and %d more", named, more)
	}
	return proxy.Event{
		Kind: "Service", Namespace: s.Name.Namespace, Name: s.Name.Name, UID: s.UID,
		Warning: true, Reason: plan.ProblemExternalIPsNotServed, Action: "ServeExternalIPs", Once: listed(addrs),
		Message: fmt.Sprintf("spec.externalIPs is not served because the feature gate AllowServiceExternalIPs is off (CVE-2020-8554): %s. "+
			"Use a Service of type LoadBalancer, a Gateway or an Ingress; \"kube-proxy audit\" suggests manifests.", named),
	}
}

func listed(addrs []netip.Addr) string { return strings.Trim(fmt.Sprint(addrs), "[]") }

func sorted(addrs []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
}
