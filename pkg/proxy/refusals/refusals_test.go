package refusals

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

type recorder struct{ events []proxy.Event }

func (r *recorder) Event(e proxy.Event) { r.events = append(r.events, e) }

// TestEvents publishes one when a port is left out, one when the cause is another, and one when it happens anew.
func TestEvents(t *testing.T) {
	r := &recorder{}
	w := New(r)
	name := cluster.ServiceName{Namespace: "default", Name: "web"}
	services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(name, &cluster.Service{Name: name, UID: "u-1"})
	for _, step := range []struct {
		cause string
		news  bool
	}{
		{"", false}, {"no xt_statistic", true}, {"no xt_statistic", false}, {"no xt_comment", true}, {"", false}, {"no xt_comment", true},
	} {
		result := backend.Result{Family: cluster.IPv6}
		if step.cause != "" {
			result.Refused = []backend.Refusal{{Service: name, Port: "default/web:http/TCP", Cause: errors.New(step.cause)}}
		}
		r.events = nil
		w.Synced(&proxy.Sync{After: &cluster.Snapshot{Services: services, Node: &cluster.Node{Name: "n1"}},
			Results: []backend.Result{{Family: cluster.IPv4}, result}})
		var want []proxy.Event
		if step.news {
			want = []proxy.Event{{Kind: "Service", Namespace: "default", Name: "web", UID: "u-1", Warning: true, Reason: "RulesRefused", Action: "ProgramService",
				Message: "node n1 does not serve default/web:http/TCP in IPv6, since its kernel refuses the rules: " + step.cause}}
		}
		if diff := cmp.Diff(want, r.events); diff != "" {
			t.Errorf("%q (-want +got):\n%s", step.cause, diff)
		}
	}
}
