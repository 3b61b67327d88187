// Package refusals publishes an Event about every Service that the kernel refuses on this node, in whole or in part, so
// that its owner sees why it is not served here.
package refusals

import (
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Watcher follows what is left out. It is a proxy.Observer.
type Watcher struct {
	recorder proxy.Recorder
	// known is what was left out in the last sync, with the cause's words.
	known map[refused]string
}

// refused is a port of a Service in one family. Another Service of the same name has another UID.
type refused struct {
	family cluster.Family
	port   string
	uid    string
}

// New makes a Watcher that has seen nothing yet.
func New(recorder proxy.Recorder) *Watcher { return &Watcher{recorder: recorder} }

// Synced publishes an Event for each port that is newly left out, or for another cause. That it is refused again for the
// same cause is no news.
func (w *Watcher) Synced(s *proxy.Sync) {
	now := map[refused]string{}
	for _, result := range s.Results {
		for _, r := range result.Refused {
			key, cause := refused{result.Family, r.Port, uid(s.After, r.Service)}, r.Cause.Error()
			if now[key] = cause; w.known[key] != cause {
				w.recorder.Event(event(s.After, key, r))
			}
		}
	}
	w.known = now
}

func event(snapshot *cluster.Snapshot, what refused, r backend.Refusal) proxy.Event {
	return proxy.Event{
		Kind: "Service", Namespace: r.Service.Namespace, Name: r.Service.Name, UID: what.uid,
		Warning: true, Reason: "RulesRefused", Action: "ProgramService",
		Message: fmt.Sprintf("node %s does not serve %s in %s, since its kernel refuses the rules: %v",
			snapshot.Node.Name, what.port, what.family, r.Cause),
	}
}

// uid is the Service's, or empty if it is gone.
func uid(snapshot *cluster.Snapshot, name cluster.ServiceName) string {
	if service, ok := snapshot.Services.Get(name); ok {
		return service.UID
	}
	return ""
}
