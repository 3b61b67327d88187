package announce

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/observers"
)

// TestEvents checks that an Event is published when a port is refused, when the cause changes, when it is refused again
// after it was served, and when the Service is recreated.
func TestEvents(t *testing.T) {
	r := &observers.Cluster{}
	w := NewReporter(ReporterConfig{Recorder: r, ExternalIPs: func(int, int) {}, Logger: logr.Discard()})
	var history proxy.History
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
		r.Events = nil
		w.Synced(history.Add(&proxy.Sync{Plan: &plan.Plan{}, After: &cluster.Snapshot{Services: services, Node: &cluster.Node{Name: "n1"}},
			Results: []backend.Result{{Family: cluster.IPv4}, result}}))
		var want []proxy.Event
		if step.event {
			want = []proxy.Event{{Kind: "Service", Namespace: "default", Name: "web", UID: step.uid, Warning: true, Reason: "RefusedByKernel", Action: "ProgramService",
				Message: "node n1 does not serve default/web:http/TCP in IPv6, because its kernel refuses the rules: " + step.cause}}
		}
		if diff := cmp.Diff(want, r.Events); diff != "" {
			t.Errorf("%q (-want +got):\n%s", step.cause, diff)
		}
	}
}

// TestTooLarge checks that an Event is published when ports of a Service are withheld, once until they are served again or
// the Service is recreated.
func TestTooLarge(t *testing.T) {
	r := &observers.Cluster{}
	w := NewReporter(ReporterConfig{Recorder: r, ExternalIPs: func(int, int) {}, Logger: logr.Discard()})
	var history proxy.History
	name := cluster.ServiceName{Namespace: "default", Name: "web"}
	for i, step := range []struct {
		uid      string
		withheld uint32
		event    bool
	}{{"u-1", 0, false}, {"u-1", 7, true}, {"u-1", 8, false}, {"u-1", 0, false}, {"u-1", 7, true}, {"u-2", 7, true}} {
		r.Events = nil
		services := cluster.Map[cluster.ServiceName, *plan.Service]{}.Set(name, &plan.Service{Name: name, UID: step.uid, WithheldPorts: step.withheld})
		p := plan.Compute(&cluster.Snapshot{Node: &cluster.Node{Name: "n1"}}, &plan.Options{}, nil)
		p.Services = services
		w.Synced(history.Add(&proxy.Sync{Plan: p, After: p.Snapshot()}))
		if got := len(r.Events) == 1; got != step.event {
			t.Errorf("step %d: %+v", i, r.Events)
		} else if got && (r.Events[0].UID != step.uid || r.Events[0].Reason != "TooLarge" || r.Events[0].Once == "") {
			t.Errorf("step %d: %+v", i, r.Events[0])
		}
	}
}

// TestDelayed checks that an Event is published when a change begins to be delayed, once until it is no longer, and of many Services only
// for a few.
func TestDelayed(t *testing.T) {
	r := &observers.Cluster{}
	w := NewReporter(ReporterConfig{Recorder: r, ExternalIPs: func(int, int) {}, Logger: logr.Discard()})
	var history proxy.History
	for i, step := range []struct{ delayed, events int }{{0, 0}, {1, 1}, {1, 0}, {2, 1}, {0, 0}, {1, 1}, {10_000, maxDelayed - 1}, {10_000, 0}} {
		s := &proxy.Sync{Plan: &plan.Plan{}, After: &cluster.Snapshot{Node: &cluster.Node{Name: "n1"}}}
		for n := range step.delayed {
			n = (n + i) % step.delayed // their turns change all the time
			s.Delayed = append(s.Delayed, proxy.Delay{Service: cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", n)}})
		}
		r.Events = nil
		w.Synced(history.Add(s))
		if len(r.Events) != step.events {
			t.Errorf("step %d: %d Events, want %d", i, len(r.Events), step.events)
		}
		for _, e := range r.Events {
			if e.Reason != "ChangeDelayed" || e.Namespace != "default" || e.Once == "" || !e.Warning {
				t.Errorf("step %d: %+v", i, e)
			}
		}
	}
}
