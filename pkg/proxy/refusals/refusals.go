// Package refusals reports every Service that is not served, or not whole, because the kernel of this node refuses its rules
// or because it would need too many of them, and those whose change is delayed because it needs many: in the log, and in an Event
// so that its owner can see why.
package refusals

import (
	"fmt"

	"github.com/go-logr/logr"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Watcher tracks refused and withheld ports. It is a proxy.Observer.
type Watcher struct {
	proxy.Ignore
	recorder proxy.Recorder
	logger   logr.Logger
	// refused holds the ports that were refused in the last sync. Their state is the text of the cause.
	refused logonce.Conditions[refused]
	// delayed are those Services whose change is delayed that were named.
	delayed map[cluster.ServiceName]bool
}

var _ proxy.Observer = (*Watcher)(nil)

// refused identifies a port of a Service in one family. A recreated Service has another UID.
type refused struct {
	family cluster.Family
	port   string
	uid    string
}

// New returns a Watcher that has not seen a sync yet.
func New(recorder proxy.Recorder, logger logr.Logger) *Watcher {
	return &Watcher{recorder: recorder, logger: logger, delayed: map[cluster.ServiceName]bool{}}
}

// Synced reports each port that is newly refused, or for another cause than before, and logs when one is accepted again.
func (w *Watcher) Synced(s *proxy.Sync) {
	now := map[refused]bool{}
	for _, result := range s.Results {
		for _, r := range result.Refused {
			key := refused{result.Family, r.Port, uid(s.After, r.Service)}
			now[key] = true
			if w.refused.Changed(key, r.Cause.Error()) {
				w.recorder.Event(event(s.After, key, r))
				w.logger.Error(r.Cause, "Service port quarantined, because its rules are refused; it is retried, and everything else is programmed",
					"port", r.Port, "family", result.Family, "earlierRulesKept", r.Kept)
			}
		}
	}
	for _, key := range w.refused.EndedExcept(func(key refused) bool { return now[key] }) {
		w.logger.Info("Service port no longer quarantined", "port", key.port, "family", key.family)
	}
	for _, change := range s.Changes.Decisions {
		if change.Is && change.After.WithheldPorts > 0 && (!change.Was || change.Before.WithheldPorts == 0 || change.Before.UID != change.After.UID) {
			w.recorder.Event(tooLarge(change.After))
		}
	}
	w.noteDelays(s)
}

// maxDelayed bounds how many of the delayed Services are named at a time.
const maxDelayed = 10

// noteDelays reports the Services whose change is newly delayed; a few of many.
func (w *Watcher) noteDelays(s *proxy.Sync) {
	delayed := make(map[cluster.ServiceName]bool, len(s.Delayed))
	for _, d := range s.Delayed {
		delayed[d.Service] = true
	}
	for name := range w.delayed {
		if !delayed[name] {
			delete(w.delayed, name)
			w.logger.Info("Change of a Service no longer delayed", "service", name)
		}
	}
	for _, d := range s.Delayed {
		if len(w.delayed) == maxDelayed {
			break
		}
		if !w.delayed[d.Service] {
			w.delayed[d.Service] = true
			w.recorder.Event(delayedEvent(d))
			w.logger.Info("Change of a Service delayed, because it needs many rules; it is programmed in parts, and other changes come first",
				"service", d.Service, "since", d.Since, "delayedServices", len(s.Delayed))
		}
	}
}

func delayedEvent(d proxy.Delay) proxy.Event {
	return proxy.Event{
		Kind: "Service", Namespace: d.Service.Namespace, Name: d.Service.Name, UID: d.UID,
		Warning: true, Reason: plan.ProblemDelayed, Action: "ProgramService", Once: plan.ProblemDelayed,
		Message: "the last change is programmed in parts, and later than others, because it needs many rules. " +
			"Use several Services with fewer ports and endpoints each, or change it less often.",
	}
}

// tooLarge returns the Event of a Service that would need too many rules. All nodes come to the same result, so one of them
// publishes it.
func tooLarge(s *plan.Service) proxy.Event {
	return proxy.Event{
		Kind: "Service", Namespace: s.Name.Namespace, Name: s.Name.Name, UID: s.UID,
		Warning: true, Reason: plan.ProblemTooLarge, Action: "ProgramService", Once: plan.ProblemTooLarge,
		Message: fmt.Sprintf("the last %d ports are not served: with all its ports, addresses and endpoints the Service would need too many rules. "+
			"Use several Services with fewer ports each.", s.WithheldPorts),
	}
}

func event(snapshot *cluster.Snapshot, what refused, r backend.Refusal) proxy.Event {
	state := "does not serve"
	if r.Kept {
		state = "keeps the earlier rules of"
	}
	return proxy.Event{
		Kind: "Service", Namespace: r.Service.Namespace, Name: r.Service.Name, UID: what.uid,
		Warning: true, Reason: plan.ProblemRefused, Action: "ProgramService",
		Message: fmt.Sprintf("node %s %s %s in %s, because its kernel refuses the rules: %v",
			snapshot.Node.Name, state, what.port, what.family, r.Cause),
	}
}

// uid returns the Service's UID, or "" if it was deleted.
func uid(snapshot *cluster.Snapshot, name cluster.ServiceName) string {
	if service, ok := snapshot.Services.Get(name); ok {
		return service.UID
	}
	return ""
}
