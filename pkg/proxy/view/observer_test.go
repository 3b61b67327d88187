package view

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// TestExplainRefused asks for a port that the kernel refuses: what counts are the rules in force, and the first step says why.
func TestExplainRefused(t *testing.T) {
	o := observed(t, objects, nil)
	p := o.State().Plan
	var route *plan.Route
	for _, r := range p.Frontends.All() {
		if r.Kind == plan.ClusterIP && r.Verdict == plan.Balance {
			route = r
		}
	}
	port := route.Of()
	ask := func(of cluster.Family, kept bool, inForce *plan.Plan) *v1alpha1.Explanation {
		result := backend.Result{Family: cluster.IPv4, InForce: inForce,
			Refused: []backend.Refusal{{Family: of, Service: route.Service, Port: port.String(), Kept: kept, Cause: errors.New("too much")}}}
		synced(o, &proxy.Sync{After: o.State().Snapshot, Plan: p, Started: start, Finished: start, Results: []backend.Result{result}})
		got, err := o.State().Explain(status.Question{From: status.FromExternal, To: netip.AddrPortFrom(route.Frontend.Addr, route.Frontend.Port).String() + "/" + route.Frontend.Protocol.String()})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for kept, want := range map[bool]string{false: v1alpha1.VerdictPass, true: v1alpha1.VerdictBalance} {
		earlier := map[plan.Port][]*plan.Route{port: nil}
		if kept {
			earlier[port] = []*plan.Route{route}
		}
		got := ask(cluster.IPv4, kept, p.Hold(earlier))
		if got.Verdict != want || !strings.Contains(got.Steps[1].Text, "the kernel refuses the rules of "+port.String()) {
			t.Errorf("kept %v: %+v; want %s", kept, got, want)
		}
	}
	if got := ask(cluster.IPv6, false, nil); got.Verdict != v1alpha1.VerdictBalance || strings.Contains(fmt.Sprint(got.Steps), "refuses") {
		t.Errorf("refused in IPv6: %+v", got)
	}
}

// TestDelayed checks that a Service whose change is delayed has that problem, and no other Service.
func TestDelayed(t *testing.T) {
	o := observed(t, objects, nil)
	s := o.State()
	var first cluster.ServiceName
	for first = range s.Plan.Services.All() {
		break
	}
	synced(o, &proxy.Sync{After: s.Snapshot, Plan: s.Plan, Started: start, Finished: start, Results: []backend.Result{{Family: cluster.IPv4}}, Delayed: []proxy.Delay{{Service: first, Since: start}}})
	s = o.State()
	for name := range s.Snapshot.Services.All() {
		delayed := slices.ContainsFunc(s.Service(name, nil).Problems, func(p v1alpha1.Problem) bool { return p.Reason == plan.ProblemDelayed })
		if delayed != (name == first) {
			t.Errorf("%s: delayed %v", name, delayed)
		}
	}
}
