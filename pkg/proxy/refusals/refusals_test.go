package refusals

import (
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

type recorder struct{ events []proxy.Event }

func (r *recorder) Event(e proxy.Event) { r.events = append(r.events, e) }

// TestEvents checks that an Event is published when a port is refused, when the cause changes, when it is refused again
// after it was served, and when the Service is recreated.
func TestEvents(t *testing.T) {
	r := &recorder{}
	w := New(r, logr.Discard())
	name := cluster.ServiceName{Namespace: "default", Name: "web"}
	for _, step := range []struct {
		uid, cause string
		event      bool
	}{
		{"u-1", "", false}, {"u-1", "no xt_statistic", true}, {"u-1", "no xt_statistic", false}, {"u-1", "no xt_comment", true},
		{"u-1", "", false}, {"u-1", "no xt_comment", true}, {"u-2", "no xt_comment", true}, {"u-2", "no xt_comment", false},
	} {
		services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(name, &cluster.Service{Name: name, UID: step.uid})
		result := backend.Result{Family: cluster.IPv6}
		if step.cause != "" {
			result.Refused = []backend.Refusal{{Service: name, Port: "default/web:http/TCP", Cause: errors.New(step.cause)}}
		}
		r.events = nil
		w.Synced(&proxy.Sync{After: &cluster.Snapshot{Services: services, Node: &cluster.Node{Name: "n1"}},
			Results: []backend.Result{{Family: cluster.IPv4}, result}})
		var want []proxy.Event
		if step.event {
			want = []proxy.Event{{Kind: "Service", Namespace: "default", Name: "web", UID: step.uid, Warning: true, Reason: "RulesRefused", Action: "ProgramService",
				Message: "node n1 does not serve default/web:http/TCP in IPv6, because its kernel refuses the rules: " + step.cause}}
		}
		if diff := cmp.Diff(want, r.events); diff != "" {
			t.Errorf("%q (-want +got):\n%s", step.cause, diff)
		}
	}
}
