package report

import (
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// refused identifies a port of a Service in one family. A recreated Service has another UID.
type refused struct {
	family cluster.Family
	port   string
	uid    string
}

// refusedPorts reports each port that the kernel newly refuses, or for another cause than before, and logs when one is accepted again.
func (o *Observer) refusedPorts(s *proxy.Sync) {
	now := map[refused]bool{}
	for _, result := range s.Results {
		for _, r := range result.Refused {
			key := refused{result.Family, r.Port, uid(s.After, r.Service)}
			now[key] = true
			if !o.refused.Changed(key, r.Cause.Error()) {
				continue
			}
			state := "does not serve"
			if r.Kept {
				state = "keeps the earlier rules of"
			}
			o.warn(r.Service, key.uid, proxy.Event{Reason: plan.ProblemRefused, Action: "ProgramService",
				Message: fmt.Sprintf("node %s %s %s in %s, because its kernel refuses the rules: %v", s.After.Node.Name, state, r.Port, result.Family, r.Cause)})
			o.config.Logger.Error(r.Cause, "Service port quarantined, because its rules are refused; it is retried, and everything else is programmed",
				"port", r.Port, "family", result.Family, "earlierRulesKept", r.Kept)
		}
	}
	for _, key := range o.refused.EndedExcept(func(key refused) bool { return now[key] }) {
		o.config.Logger.Info("Service port no longer quarantined", "port", key.port, "family", key.family)
	}
}

// uid returns the Service's UID, or "" if it was deleted.
func uid(snapshot *cluster.Snapshot, name cluster.ServiceName) string {
	if service, ok := snapshot.Services.Get(name); ok {
		return service.UID
	}
	return ""
}

// tooLarge publishes an Event about a Service that would need too many rules. All nodes come to the same result, so one of them
// publishes it.
func (o *Observer) tooLarge(s *plan.Service) {
	o.warn(s.Name, s.UID, proxy.Event{Reason: plan.ProblemTooLarge, Action: "ProgramService", Once: plan.ProblemTooLarge,
		Message: fmt.Sprintf("the last %d ports are not served: with all its ports, addresses and endpoints the Service would need too many rules. "+
			"Use several Services with fewer ports each.", s.WithheldPorts)})
}

// unbalanced publishes an Event about a Service that is not balanced as its annotations say. The reason is the same on all nodes of a mode.
func (o *Observer) unbalanced(s *plan.Service) {
	o.warn(s.Name, s.UID, proxy.Event{Reason: plan.ProblemBalancing, Action: "ProgramService", Once: s.Unbalanced(),
		Message: s.Unbalanced() + ". Connections are served all the same; see docs/balancing.md."})
}

// unfenced publishes an Event about a Service whose connections are not bounded as its annotation says, also the same on all nodes.
func (o *Observer) unfenced(s *plan.Service) {
	o.warn(s.Name, s.UID, proxy.Event{Reason: plan.ProblemFence, Action: "ProgramService", Once: s.Unfenced(),
		Message: s.Unfenced() + ". Connections are served all the same, with the limits of the namespace, if there are any; see docs/limits.md."})
}

// maxDelayed bounds how many of the delayed Services are named at a time.
const maxDelayed = 10

// delays reports the Services whose change is newly delayed because it needs many rules; a few of many.
func (o *Observer) delays(s *proxy.Sync) {
	delayed := make(map[cluster.ServiceName]bool, len(s.Delayed))
	for _, d := range s.Delayed {
		delayed[d.Service] = true
	}
	for name := range o.delayed {
		if !delayed[name] {
			delete(o.delayed, name)
			o.config.Logger.Info("Change of a Service no longer delayed", "service", name)
		}
	}
	for _, d := range s.Delayed {
		if len(o.delayed) == maxDelayed {
			break
		}
		if !o.delayed[d.Service] {
			o.delayed[d.Service] = true
			o.warn(d.Service, d.UID, proxy.Event{Reason: plan.ProblemDelayed, Action: "ProgramService", Once: plan.ProblemDelayed,
				Message: "the last change is programmed in parts, and later than others, because it needs many rules. " +
					"Use several Services with fewer ports and endpoints each, or change it less often."})
			o.config.Logger.Info("Change of a Service delayed, because it needs many rules; it is programmed in parts, and other changes come first",
				"service", d.Service, "since", d.Since, "delayedServices", len(s.Delayed))
		}
	}
}
