package proxy

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// synced records a sync that cost some processor time and took no other.
func (p *pacer) synced(at time.Time, cost time.Duration, err error) {
	p.record(&Sync{Started: at, Finished: at, Cost: cost, Results: []backend.Result{{Err: err}}})
}

// TestPacer checks the edges.
func TestPacer(t *testing.T) {
	for _, test := range []struct {
		name string
		cost time.Duration
		err  error
		// wait is from right after the sync.
		wait time.Duration
	}{
		{"a sync that cost nothing", 0, nil, 0},
		{"one that left credit for as much", 499 * time.Millisecond, nil, 0},
		{"one that left almost enough", 503 * time.Millisecond, nil, 200 * time.Millisecond},
		{"one that left much less", 900 * time.Millisecond, nil, time.Second},
		{"one that cost more than there ever is", 10 * time.Minute, nil, time.Second},
		{"a failure", 0, errors.New("refused"), time.Second},
	} {
		p := pacer{min: time.Second}
		if got := p.wait(noon); got != 0 {
			t.Errorf("before the first sync: wait for %s", got)
		}
		p.synced(noon, test.cost, test.err)
		if got := p.wait(noon); got.Round(time.Microsecond) != test.wait {
			t.Errorf("%s: wait for %s, want %s", test.name, got, test.wait)
		}
		for _, later := range []time.Time{noon.Add(time.Second), noon.AddDate(1000, 0, 0)} {
			if got := p.wait(later); got != 0 {
				t.Errorf("%s, at %s: wait for %s", test.name, later, got)
			}
		}
	}
}

// TestEarlySyncsStayInBudget lets changes come at any pace for ten minutes: none waits longer than the minimum period, in no minute do the
// syncs that come earlier use more than 5 % of a core, and all of them together use no more than 30 %, or what they cost in each period.
func TestEarlySyncsStayInBudget(t *testing.T) {
	const period, minute = time.Second, time.Minute
	for _, cost := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 70 * time.Millisecond,
		200 * time.Millisecond, 900 * time.Millisecond, 3 * time.Second} {
		random := rand.New(rand.NewPCG(uint64(cost), 1))
		p := pacer{min: period}
		now, early, all := noon, map[time.Time]time.Duration{}, time.Duration(0)
		for now.Before(noon.Add(10 * minute)) {
			if random.IntN(200) == 0 {
				now = now.Add(time.Duration(random.Int64N(int64(minute)))) // a quiet time, in which there is credit
			}
			now = now.Add(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			wait := p.wait(now)
			if idle := now.Sub(p.last); wait > 0 && idle+wait > period {
				t.Fatalf("syncs of %s: %s after the last sync the next has to wait for %s", cost, idle, wait)
			}
			now = now.Add(wait)
			if now.Sub(p.last) < p.period() {
				early[now] = cost
			}
			p.synced(now, cost, nil)
			all += cost
			now = now.Add(cost)
			p.last = now
		}
		if share := all.Seconds() / now.Sub(noon).Seconds(); share > max(0.3, 1.01*cost.Seconds()/(cost+period).Seconds()) {
			t.Errorf("syncs of %s use %.2f of a core", cost, share)
		}
		for from := range early {
			used := time.Duration(0)
			for at, cost := range early {
				if !at.Before(from) && at.Before(from.Add(minute)) {
					used += cost
				}
			}
			if used > minute/20 {
				t.Errorf("syncs of %s: those that came early used %s in a minute", cost, used)
			}
		}
	}
}

// TestRepairsWithinSyncPeriod damages the rules again after each repair: however expensive repairs are, none waits for longer than the
// sync period, after twice which the proxy would not count as healthy.
func TestRepairsWithinSyncPeriod(t *testing.T) {
	const period = 5 * time.Second
	r, now, longest := repairs{}, noon, time.Duration(0)
	for range 20 {
		wait := r.wait(now, 20*time.Second, period, []backend.Drift{{Family: cluster.IPv4}})
		longest = max(longest, wait)
		now = now.Add(wait)
		r.synced()
	}
	if longest != period {
		t.Errorf("the longest delay is %s, want %s", longest, period)
	}
}

// TestCheapChangesAreNotHeldBack replays what a rolling update asks for: changes 100 ms apart, after a quiet half minute.
func TestCheapChangesAreNotHeldBack(t *testing.T) {
	p := pacer{min: time.Second}
	p.synced(noon, 2*time.Second, nil) // the cold start
	now := noon.Add(40 * time.Second)
	for change := range 50 {
		if wait := p.wait(now); change > 0 && wait > 0 {
			t.Fatalf("change %d waits for %s", change, wait)
		}
		p.synced(now, 20*time.Millisecond, nil)
		now = now.Add(100 * time.Millisecond)
	}
}
