package health

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

var epoch = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// at returns a time, in seconds after epoch.
func at(second int) time.Time { return epoch.Add(time.Duration(second) * time.Second) }

// synced returns a Sync at a second; the families in fail have failed.
func synced(second int, draining bool, fail ...cluster.Family) *proxy.Sync {
	s := &proxy.Sync{
		Started: at(second), Finished: at(second),
		After: &cluster.Snapshot{Node: &cluster.Node{Draining: draining}},
	}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		result := backend.Result{Family: family}
		for _, failed := range fail {
			if failed == family {
				result.Err = errors.New("permission denied")
			}
		}
		s.Results = append(s.Results, result)
	}
	return s
}

func TestChecker(t *testing.T) {
	type step func(*Checker)
	queued := func(second int) step { return func(c *Checker) { c.Queued(at(second)) } }
	sync := func(second int, fail ...cluster.Family) step {
		return func(c *Checker) { c.Synced(synced(second, false, fail...)) }
	}
	drifted := func(second int) step {
		return func(c *Checker) {
			clock := c.config.Clock.(*testclock.FakePassiveClock)
			now := clock.Now()
			clock.SetTime(at(second))
			c.Drifted(backend.Drift{Family: cluster.IPv6})
			clock.SetTime(now)
		}
	}
	drain := func(second int) step { return func(c *Checker) { c.Synced(synced(second, true)) } }
	for _, test := range []struct {
		name           string
		steps          []step
		now            int
		healthz, livez int
		healthy        bool
	}{
		{"nothing synced yet", nil, 3600, 503, 200, false},
		{"first sync pending for long", []step{queued(0)}, 61, 503, 503, false},
		{"first sync fails, not for long", []step{sync(0, cluster.IPv4)}, 60, 503, 200, false},
		{"first sync fails for long", []step{sync(0, cluster.IPv4)}, 61, 503, 503, false},
		{"one family never synced", []step{sync(0, cluster.IPv6), sync(30, cluster.IPv6)}, 40, 503, 200, false},
		{"synced long ago and nothing new", []step{sync(0)}, 86400, 200, 200, true},
		{"a change waits exactly twice the period", []step{sync(0), queued(100)}, 160, 200, 200, true},
		{"a change waits longer", []step{sync(0), queued(100)}, 161, 503, 503, false},
		{"the oldest change counts", []step{sync(0), queued(100), queued(150)}, 161, 503, 503, false},
		{"a sync programs all changes", []step{sync(0), queued(100), queued(110), sync(120)}, 300, 200, 200, true},
		{"one family lags", []step{sync(0), queued(100), sync(120, cluster.IPv6)}, 161, 503, 503, false},
		{"a failure ends", []step{sync(0), queued(100), sync(120, cluster.IPv6), sync(170)}, 300, 200, 200, true},
		{"a sync without a queued change fails", []step{sync(0), sync(100, cluster.IPv4), sync(150, cluster.IPv4)}, 161, 503, 503, false},
		{"a repair waits exactly twice the period", []step{sync(0), drifted(100)}, 160, 200, 200, true},
		{"a repair waits longer", []step{sync(0), drifted(100)}, 161, 503, 503, false},
		{"a repair succeeds", []step{sync(0), drifted(100), sync(101)}, 300, 200, 200, true},
		{"the node drains", []step{sync(0), drain(10)}, 20, 503, 200, true},
		{"the node stops draining", []step{drain(0), sync(10)}, 20, 200, 200, true},
		{"the node drains and a family fails", []step{drain(0), func(c *Checker) { c.Synced(synced(5, true, cluster.IPv4)) }}, 20, 503, 200, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var codes [2]int
			checker := NewChecker(Config{
				Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, SyncPeriod: 30 * time.Second,
				Clock:           testclock.NewFakePassiveClock(at(test.now)),
				HealthzAnswered: func(code int) { codes[0] = code },
				LivezAnswered:   func(code int) { codes[1] = code },
			})
			for _, step := range test.steps {
				step(checker)
			}
			for i, want := range []struct {
				path string
				code int
			}{{"/healthz", test.healthz}, {"/livez", test.livez}} {
				answer := ask(checker.Handler(), want.path)
				if answer.Code != want.code || codes[i] != want.code {
					t.Errorf("%s: got %d and counted %d, want %d: %s", want.path, answer.Code, codes[i], want.code, answer.Body)
				}
			}
			if checker.Healthy() != test.healthy {
				t.Errorf("Healthy: got %v, want %v", checker.Healthy(), test.healthy)
			}
		})
	}
}

func ask(handler http.Handler, path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return recorder
}

func TestCheckerBody(t *testing.T) {
	waiting := []string{"the Node object"}
	checker := NewChecker(Config{
		Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, SyncPeriod: 30 * time.Second,
		Waiting: func() []string { return waiting }, Clock: testclock.NewFakePassiveClock(at(100)),
	})
	check := func(name, path, want string) {
		t.Helper()
		answer := ask(checker.Handler(), path)
		if got := answer.Header().Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: X-Content-Type-Options: %q", name, got)
		}
		var got, wanted any
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s: body of %s (-want +got):\n%s", name, path, diff)
		}
	}
	check("before the first sync", "/livez", `{
		"lastUpdated": "2026-09-01T12:01:40Z", "currentTime": "2026-09-01T12:01:40Z", "healthy": true,
		"status": {"IPv4": {"lastUpdated": null, "healthy": true}, "IPv6": {"lastUpdated": null, "healthy": true}}}`)
	checker.Synced(synced(10, false))
	check("healthy and waiting", "/healthz", `{
		"lastUpdated": "2026-09-01T12:01:40Z", "currentTime": "2026-09-01T12:01:40Z", "nodeEligible": true, "healthy": true,
		"status": {"IPv4": {"lastUpdated": "2026-09-01T12:00:10Z", "healthy": true},
		           "IPv6": {"lastUpdated": "2026-09-01T12:00:10Z", "healthy": true}},
		"waitingFor": ["the Node object"]}`)
	waiting = nil
	check("healthy", "/healthz", `{
		"lastUpdated": "2026-09-01T12:01:40Z", "currentTime": "2026-09-01T12:01:40Z", "nodeEligible": true, "healthy": true,
		"status": {"IPv4": {"lastUpdated": "2026-09-01T12:00:10Z", "healthy": true},
		           "IPv6": {"lastUpdated": "2026-09-01T12:00:10Z", "healthy": true}}}`)
	checker.Synced(synced(20, true, cluster.IPv6))
	check("one family fails on a draining node", "/healthz", `{
		"lastUpdated": "2026-09-01T12:00:10Z", "currentTime": "2026-09-01T12:01:40Z", "nodeEligible": false, "healthy": false,
		"status": {"IPv4": {"lastUpdated": "2026-09-01T12:00:20Z", "healthy": true},
		           "IPv6": {"lastUpdated": "2026-09-01T12:00:10Z", "healthy": false, "error": "permission denied"}}}`)
}

// TestDelayedServices checks that /healthz has the number of Services whose change is delayed, and is 200 all the same.
func TestDelayedServices(t *testing.T) {
	c := NewChecker(Config{Families: []cluster.Family{cluster.IPv4}, SyncPeriod: time.Second, Clock: testclock.NewFakePassiveClock(epoch)})
	for _, delayed := range []int{0, 2} {
		s := synced(0, false)
		s.Delayed = make([]proxy.Delay, delayed)
		c.Synced(s)
		answered := httptest.NewRecorder()
		c.Handler().ServeHTTP(answered, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
		var body struct{ DelayedServices int }
		if err := json.Unmarshal(answered.Body.Bytes(), &body); err != nil || answered.Code != http.StatusOK || body.DelayedServices != delayed {
			t.Errorf("%d delayed: %d %s, error %v", delayed, answered.Code, answered.Body, err)
		}
	}
}

// TestBroken checks that what is broken fails /healthz and health check node ports, and not /livez.
func TestBroken(t *testing.T) {
	var broken []string
	c := NewChecker(Config{Families: []cluster.Family{cluster.IPv4}, SyncPeriod: time.Second, Clock: testclock.NewFakePassiveClock(epoch),
		Broken: func() []string { return broken }})
	c.Synced(synced(0, false))
	for _, broken = range [][]string{nil, {"a firewall drops everything"}} {
		healthz, livez, want := ask(c.Handler(), "/healthz"), ask(c.Handler(), "/livez"), http.StatusOK
		if len(broken) > 0 {
			want = http.StatusServiceUnavailable
		}
		var body struct{ Broken []string }
		err := json.Unmarshal(healthz.Body.Bytes(), &body)
		if diff := cmp.Diff(broken, body.Broken); err != nil || diff != "" || healthz.Code != want || livez.Code != http.StatusOK || c.Healthy() != (broken == nil) {
			t.Errorf("broken %q: /healthz %d %s, /livez %d, healthy %t", broken, healthz.Code, healthz.Body, livez.Code, c.Healthy())
		}
	}
}
