package rehearsal

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// fakeBackend returns a Result, and keeps the plan. It panics if anything but Sync and Close is called.
type fakeBackend struct {
	backend.Backend
	result backend.Result
	synced *plan.Plan
	closed error
}

func (f *fakeBackend) Sync(_ context.Context, p *plan.Plan) []backend.Result {
	f.synced = p
	return []backend.Result{f.result}
}

func (f *fakeBackend) Close() error { return f.closed }

// TestRun returns a step for each feature and one for the whole ruleset, with what goes wrong.
func TestRun(t *testing.T) {
	wrong := errors.New("wrong")
	refused := backend.Result{Refused: []backend.Refusal{{Port: "a/b:80/TCP", Cause: wrong}}}
	for _, test := range []struct {
		name           string
		features, open error
		opened         fakeBackend
		want           string // the error of the whole ruleset
	}{
		{"good", nil, nil, fakeBackend{}, ""},
		{"features cannot be tried", wrong, nil, fakeBackend{}, "wrong"},
		{"cannot be opened", nil, wrong, fakeBackend{}, "wrong"},
		{"cannot be written", nil, nil, fakeBackend{result: backend.Result{Err: wrong}}, "wrong"},
		{"a port is refused", nil, nil, fakeBackend{result: refused}, "port a/b:80/TCP: wrong"},
		{"cannot be closed", nil, nil, fakeBackend{closed: wrong}, "wrong"},
	} {
		steps := Run(t.Context(), Config{
			Families: []cluster.Family{cluster.IPv6}, Plan: &plan.Options{},
			Features: func(context.Context, cluster.Family) ([]check.Step, error) {
				return []check.Step{{Name: "nat", Module: "m"}}, test.features
			},
			Open: func(context.Context, cluster.Family) (backend.Backend, error) { return &test.opened, test.open },
		})
		if diff := cmp.Diff([]check.Step{{Name: "nat (IPv6)", Module: "m"}, {Name: "the whole ruleset (IPv6)", Error: test.want}}, steps); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestSample checks that the sample has a route of every kind, verdict and setting, in both families.
func TestSample(t *testing.T) {
	p := plan.Compute(sample(), &plan.Options{ServeExternalIPs: true}, nil)
	seen := map[string]bool{}
	for _, r := range p.Frontends.All() {
		family := " " + r.Frontend.Family().String()
		seen[r.Kind.String()+family], seen[r.Verdict.String()+family] = true, true
		seen["affinity"+family] = seen["affinity"+family] || r.Affinity > 0
		seen["ranges"+family] = seen["ranges"+family] || len(r.SourceRanges) > 0
		seen["short cut"+family] = seen["short cut"+family] || r.ShortCut != nil
		seen[r.Frontend.Protocol.String()+family] = true
	}
	for _, family := range []string{" IPv4", " IPv6"} {
		for _, want := range []string{"cluster IP", "load balancer IP", "external IP", "node port", "balance", "reject", "drop", "affinity", "ranges", "short cut", "TCP", "UDP"} {
			if !seen[want+family] {
				t.Errorf("no route with %s%s", want, family)
			}
		}
	}
}
