package check

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func (f *fakeBackend) Sync(_ context.Context, p *plan.Plan, _ ...cluster.Family) []backend.Result {
	f.synced = p
	return []backend.Result{f.result}
}

func (f *fakeBackend) Close() error { return f.closed }

// fakeMode has one feature and opens a fakeBackend.
type fakeMode struct {
	backend.Mode
	features, open error
	opened         *fakeBackend
}

func (f *fakeMode) Features(_ context.Context, variant string, _ cluster.Family) ([]backend.Feature, error) {
	return []backend.Feature{{Name: "nat of " + variant, Module: "m"}}, f.features
}

func (f *fakeMode) Open(context.Context, ...cluster.Family) (backend.Backend, error) {
	return f.opened, f.open
}

// TestNothingToRun rejects no family.
func TestNothingToRun(t *testing.T) {
	if _, err := (&Rehearsal{Mode: &fakeMode{}}).Run(t.Context()); err == nil {
		t.Error("it was run")
	}
}

// TestRehearsal returns a step for each feature and one for the whole ruleset, with what goes wrong.
func TestRehearsal(t *testing.T) {
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
		steps, err := (&Rehearsal{Families: []string{"IPv6"}, Plan: &plan.Options{}, Variant: "v",
			Mode: &fakeMode{features: test.features, open: test.open, opened: &test.opened}}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Step{{Name: "nat of v (IPv6)", Module: "m"}, {Name: "the whole ruleset (IPv6)", Error: test.want}}, steps); diff != "" {
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
		seen["affinity"+family] = seen["affinity"+family] || r.Affinity != nil
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
