package proxy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// TestHistory checks that a sync has the changes since the one before, and for each family those since it was programmed last, and those since all were.
func TestHistory(t *testing.T) {
	failed := errors.New("no")
	var h History
	planned := versions()
	for i, step := range []struct {
		versions  string // of Services, by name
		four, six error
		changed   string
		inFour    string // "-" if it was not programmed
		inSix     string
		applied   string
	}{
		{"a1 b1", failed, nil, "a b", "-", "a b", "-"},
		{"a1 b2", nil, nil, "b", "a b", "b", "a b"},
		{"a2 b2 c1", nil, failed, "a c", "a c", "-", "-"},
		{"a2 b2", nil, failed, "c", "c", "-", "-"},
		{"a2 b2", nil, nil, "", "", "a", "a"},
		{"", nil, nil, "a b", "a b", "a b", "a b"},
	} {
		s := h.Add(&Sync{Plan: planned(step.versions), Results: []backend.Result{{Family: cluster.IPv4, Err: step.four}, {Family: cluster.IPv6, Err: step.six}}})
		inForce := func(family cluster.Family) string {
			if changes, ok := s.Programmed[family]; ok {
				return names(changes)
			}
			return "-"
		}
		applied := "-"
		if s.Applied != nil {
			applied = names(*s.Applied)
		}
		got := [...]string{names(s.Changes), inForce(cluster.IPv4), inForce(cluster.IPv6), applied}
		if diff := cmp.Diff([...]string{step.changed, step.inFour, step.inSix, step.applied}, got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// versions returns a function that makes a plan of Services, given as words of a name and a version.
func versions() func(words string) *plan.Plan {
	known := map[string]*plan.Service{}
	return func(words string) *plan.Plan {
		p := &plan.Plan{}
		for word := range strings.FieldsSeq(words) {
			if known[word] == nil {
				known[word] = &plan.Service{Name: cluster.ServiceName{Name: word[:1]}}
			}
			p.Services = p.Services.Set(known[word].Name, known[word])
		}
		return p
	}
}

// names returns the names of the Services that changed.
func names(c Changes) string {
	var all []string
	for name := range c.Decisions {
		all = append(all, name.Name)
	}
	return strings.Join(all, " ")
}
