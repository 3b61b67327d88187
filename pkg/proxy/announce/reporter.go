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
		for _, about := range decided() {
			if change.Is && about.why(change.After) != "" && (!change.Was || about.why(change.Before) != about.why(change.After) || recreated) {
				r.warn(name, change.After.UID, proxy.Event{Reason: about.reason, Action: "ProgramService", Once: about.why(change.After), Message: about.message(change.After)})
			}
		}
	}
	r.contested(losers, s.Plan)
	r.externalIPs(s)
	r.refusedPorts(s)
	r.delays(s)
	r.changed(s)
}

// decision is something that the plan of a Service may say. All nodes, of a mode at least, come to the same result, so one of them publishes it.
type decision struct {
	reason string
	// why is what is said, "" if it is not, and message what to do about it.
	why, message func(*plan.Service) string
}

// decided returns all decisions that are published.
func decided() []decision {
	tooLarge := func(s *plan.Service) string {
		if s.WithheldPorts == 0 {
			return ""
		}
		return plan.ProblemTooLarge
	}
	return []decision{
		{plan.ProblemTooLarge, tooLarge, func(s *plan.Service) string {
			return fmt.Sprintf("the last %d ports are not served: with all its ports, addresses and endpoints the Service would need too many rules. "+
				"Use several Services with fewer ports each.", s.WithheldPorts)
		}},
		{plan.ProblemBalancing, (*plan.Service).Unbalanced, func(s *plan.Service) string {
			return s.Unbalanced() + ". Connections are served all the same; see docs/balancing.md."
		}},
		{plan.ProblemFence, (*plan.Service).Unfenced, func(s *plan.Service) string {
			return s.Unfenced() + ". Connections are served all the same, with the limits of the namespace, if there are any; see docs/limits.md."
		}},
	}
}

// warn publishes an Event about a Service, whose type is Warning.
func (r *Reporter) warn(about cluster.ServiceName, uid string, e proxy.Event) {
	e.Kind, e.Namespace, e.Name, e.UID, e.Warning = "Service", about.Namespace, about.Name, uid, true
	r.config.Recorder.Event(e)
}
