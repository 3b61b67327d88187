package announce

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
func (r *Reporter) refusedPorts(s *proxy.Sync) {
	now := map[refused]bool{}
	for _, result := range s.Results {
		for _, port := range result.Refused {
			key := refused{result.Family, port.Port, uid(s.After, port.Service)}
			now[key] = true
			if !r.refused.Changed(key, port.Cause.Error()) {
				continue
			}
			state := "does not serve"
			if port.Kept {
				state = "keeps the earlier rules of"
			}
			r.warn(port.Service, key.uid, proxy.Event{Reason: plan.ProblemRefused, Action: "ProgramService",
				Message: fmt.Sprintf("node %s %s %s in %s, because its kernel refuses the rules: %v", s.After.Node.Name, state, port.Port, result.Family, port.Cause)})
			r.config.Logger.Error(port.Cause, "Service port quarantined, because its rules are refused; it is retried, and everything else is programmed",
				"port", port.Port, "family", result.Family, "earlierRulesKept", port.Kept)
		}
	}
	for _, key := range r.refused.EndedExcept(func(key refused) bool { return now[key] }) {
		r.config.Logger.Info("Service port no longer quarantined", "port", key.port, "family", key.family)
	}
}

// uid returns the Service's UID, or "" if it was deleted.
func uid(snapshot *cluster.Snapshot, name cluster.ServiceName) string {
	if service, ok := snapshot.Services.Get(name); ok {
		return service.UID
	}
	return ""
}

// maxDelayed bounds how many of the delayed Services are named at a time.
const maxDelayed = 10

// delays reports the Services whose change is newly delayed because it needs many rules; a few of many.
func (r *Reporter) delays(s *proxy.Sync) {
	delayed := make(map[cluster.ServiceName]bool, len(s.Delayed))
	for _, d := range s.Delayed {
		delayed[d.Service] = true
	}
	for name := range r.delayed {
		if !delayed[name] {
			delete(r.delayed, name)
			r.config.Logger.Info("Change of a Service no longer delayed", "service", name)
		}
	}
	for _, d := range s.Delayed {
		if len(r.delayed) == maxDelayed {
			break
		}
		if !r.delayed[d.Service] {
			r.delayed[d.Service] = true
			r.warn(d.Service, d.UID, proxy.Event{Reason: plan.ProblemDelayed, Action: "ProgramService", Once: plan.ProblemDelayed,
				Message: "the last change is programmed in parts, and later than others, because it needs many rules. " +
					"Use several Services with fewer ports and endpoints each, or change it less often."})
			r.config.Logger.Info("Change of a Service delayed, because it needs many rules; it is programmed in parts, and other changes come first",
				"service", d.Service, "since", d.Since, "delayedServices", len(s.Delayed))
		}
	}
}
