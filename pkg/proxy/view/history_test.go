package view

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// TestHistory checks that each minute has its syncs, their durations, and the changes of Services after the first sync;
// that quiet minutes are 0; and that only the last hour is kept.
func TestHistory(t *testing.T) {
	clock := testclock.NewFakePassiveClock(start)
	o := New(Config{Started: start, Families: []cluster.Family{cluster.IPv4}, Clock: clock})
	minute := func(n int) v1alpha1.Minute { return v1alpha1.Minute{Start: start.Add(time.Duration(n) * time.Minute)} }
	check := func(want ...v1alpha1.Minute) {
		t.Helper()
		if diff := cmp.Diff(want, o.History().Items); diff != "" {
			t.Errorf("the history differs (-want +got):\n%s", diff)
		}
	}
	check(minute(0))

	var seen proxy.History
	programs := func(s *cluster.Snapshot, began time.Time, err error) {
		o.Synced(seen.Add(&proxy.Sync{After: s, Plan: plan.Compute(s, &plan.Options{}, nil), Started: began, Finished: began.Add(time.Second),
			Results: []backend.Result{{Family: cluster.IPv4, Err: err}}}))
	}
	before, after := snapshot(t, objects), snapshot(t, objects)
	name := cluster.ServiceName{Namespace: "default", Name: "web"}
	web, _ := before.Services.Get(name)
	changed := *web
	changed.Affinity = time.Hour
	after.Services = before.Services.Set(name, &changed)
	programs(before, start, nil)
	programs(after, start.Add(10*time.Second), errors.New("kernel"))
	programs(before, start.Add(2*time.Minute), nil)
	clock.SetTime(start.Add(3 * time.Minute))
	first, third := minute(0), minute(2)
	first.Syncs, first.Failed, first.Seconds, first.Slowest, first.Changes = 2, 1, 2, 1, 1
	third.Syncs, third.Seconds, third.Slowest, third.Changes = 1, 1, 1, 1
	check(first, minute(1), third, minute(3))

	clock.SetTime(start.Add(62*time.Minute + time.Second))
	programs(before, start.Add(62*time.Minute), nil)
	items := o.History().Items
	if len(items) != maxMinutes || items[0].Start != start.Add(3*time.Minute) || items[59].Syncs != 1 || items[59].Changes != 0 {
		t.Errorf("after an hour the history is %d minutes, from %v to %+v", len(items), items[0].Start, items[59])
	}
}
