// Package report logs, and publishes Events about, what a user may not expect of a Service: that it is not served on an address or port, or
// not yet, and why. It only reports what the plan or the backend decides.
package report

import (
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Config configures an Observer.
type Config struct {
	Recorder proxy.Recorder
	// ExternalIPs is called after every sync with the number of Services whose external IPs are served, and of those whose are not.
	ExternalIPs func(served, ignored int)
	Logger      klog.Logger
}

// Observer reports once what is new in a sync. Its cost is proportional to what changed.
type Observer struct {
	proxy.Ignore
	config Config
	// started reports that there was a sync. served and ignored count the Services with external IPs.
	started         bool
	served, ignored int
	// refused holds the ports that were refused in the last sync. Their state is the text of the cause.
	refused logonce.Conditions[refused]
	// delayed are those Services whose change is delayed that were named.
	delayed map[cluster.ServiceName]bool
}

var _ proxy.Observer = (*Observer)(nil)

// New returns an Observer that has not seen a sync yet.
func New(config Config) *Observer {
	return &Observer{config: config, delayed: map[cluster.ServiceName]bool{}}
}

// Synced implements [proxy.Observer].
func (o *Observer) Synced(s *proxy.Sync) {
	losers := newLosers(&s.Changes)
	for name, change := range s.Changes.Decisions {
		recreated := change.Was && change.Is && change.Before.UID != change.After.UID
		if recreated {
			losers = append(losers, name)
		}
		if change.Is && change.After.WithheldPorts > 0 && (!change.Was || change.Before.WithheldPorts == 0 || recreated) {
			o.tooLarge(change.After)
		}
		if change.Is && change.After.Unbalanced() != "" && (!change.Was || change.Before.Unbalanced() != change.After.Unbalanced() || recreated) {
			o.unbalanced(change.After)
		}
		if change.Is && change.After.Unfenced() != "" && (!change.Was || change.Before.Unfenced() != change.After.Unfenced() || recreated) {
			o.unfenced(change.After)
		}
	}
	o.contested(losers, s.Plan)
	o.externalIPs(s)
	o.refusedPorts(s)
	o.delays(s)
	o.changed(s)
}

// warn publishes an Event about a Service, whose type is Warning.
func (o *Observer) warn(about cluster.ServiceName, uid string, e proxy.Event) {
	e.Kind, e.Namespace, e.Name, e.UID, e.Warning = "Service", about.Namespace, about.Name, uid, true
	o.config.Recorder.Event(e)
}
