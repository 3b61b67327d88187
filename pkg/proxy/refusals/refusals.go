// Package refusals reports every port of a Service whose rules the kernel refuses on this node: in the log, and in an Event
// so that its owner can see why it is not served here.
package refusals

import (
	"fmt"

	"github.com/go-logr/logr"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Watcher tracks refused ports. It is a proxy.SyncObserver.
type Watcher struct {
	recorder proxy.Recorder
	logger   logr.Logger
	// refused holds the ports that were refused in the last sync. Their state is the text of the cause.
	refused logonce.Conditions[refused]
}

var _ proxy.SyncObserver = (*Watcher)(nil)

// refused identifies a port of a Service in one family. A recreated Service has another UID.
type refused struct {
	family cluster.Family
	port   string
	uid    string
}

// New returns a Watcher that has not seen a sync yet.
func New(recorder proxy.Recorder, logger logr.Logger) *Watcher {
	return &Watcher{recorder: recorder, logger: logger}
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
}

func event(snapshot *cluster.Snapshot, what refused, r backend.Refusal) proxy.Event {
	state := "does not serve"
	if r.Kept {
		state = "keeps the earlier rules of"
	}
	return proxy.Event{
		Kind: "Service", Namespace: r.Service.Namespace, Name: r.Service.Name, UID: what.uid,
		Warning: true, Reason: "RulesRefused", Action: "ProgramService",
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
