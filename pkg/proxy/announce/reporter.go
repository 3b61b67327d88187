package announce

import (
	"fmt"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// ReporterConfig configures a Reporter.
type ReporterConfig struct {
	Recorder proxy.Recorder
	// ExternalIPs is called after every sync with the number of Services whose external IPs are served, and of those whose are not.
	ExternalIPs func(served, ignored int)
	Logger      klog.Logger
}

// Reporter is an Observer that reports once what is new in a sync, and only what the plan or the backend decides. Its cost is proportional to
// what changed.
type Reporter struct {
	proxy.Ignore
	config ReporterConfig
	// started reports that there was a sync. served and ignored count the Services with external IPs.
	started         bool
	served, ignored int
	// refused holds the ports that were refused in the last sync. Their state is the text of the cause.
	refused logonce.Conditions[refused]
	// delayed are those Services whose change is delayed that were named.
	delayed map[cluster.ServiceName]bool
}

var _ proxy.Observer = (*Reporter)(nil)

// NewReporter returns a Reporter that has not seen a sync yet.
func NewReporter(config ReporterConfig) *Reporter {
	return &Reporter{config: config, delayed: map[cluster.ServiceName]bool{}}
}

// Synced implements [proxy.Observer].
func (r *Reporter) Synced(s *proxy.Sync) {
	losers := newLosers(&s.Changes)
	for name, change := range s.Changes.Decisions {
		recreated := change.Was && change.Is && change.Before.UID != change.After.UID
		if recreated {
			losers = append(losers, name)
		}
		if !change.Is {
			continue
		}
		// All nodes, of a mode at least, come to the same decision, so one of them publishes it.
		decided := func(reason string, why func(*plan.Service) string, format string, args ...any) {
			if text := why(change.After); text != "" && (!change.Was || why(change.Before) != text || recreated) {
				r.warn(name, change.After.UID, proxy.Event{Reason: reason, Action: "ProgramService", Once: text, Message: fmt.Sprintf(format, args...)})
			}
		}
		decided(plan.ProblemTooLarge, tooLarge, "the last %d ports are not served: with all its ports, addresses and endpoints the Service would need too many rules. "+
			"Use several Services with fewer ports each.", change.After.WithheldPorts)
		decided(plan.ProblemBalancing, (*plan.Service).Unbalanced, "%s. Connections are served all the same; see docs/balancing.md.", change.After.Unbalanced())
		decided(plan.ProblemFence, (*plan.Service).Unfenced, "%s. Connections are served all the same, with the limits of the namespace, if there are any; see docs/limits.md.",
			change.After.Unfenced())
	}
	r.contested(losers, s.Plan)
	r.externalIPs(s)
	r.refusedPorts(s)
	r.delays(s)
	r.changed(s)
}

// tooLarge returns a text if ports of a Service are not served because it would need too many rules.
func tooLarge(s *plan.Service) string {
	if s.WithheldPorts == 0 {
		return ""
	}
	return plan.ProblemTooLarge
}

// warn publishes an Event about a Service, whose type is Warning.
func (r *Reporter) warn(about cluster.ServiceName, uid string, e proxy.Event) {
	e.Kind, e.Namespace, e.Name, e.UID, e.Warning = "Service", about.Namespace, about.Name, uid, true
	r.config.Recorder.Event(e)
}
