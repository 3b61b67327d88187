package proxy

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

const (
	// earlyShare is the share of a core that early syncs may use in the long run.
	earlyShare = 0.03
	// maxCredit is the maximum credit. Together with earlyShare it bounds what early syncs use in any minute:
	// 1 s + 3 % of 60 s is 2.8 s, less than 5 % of a core.
	maxCredit = time.Second

	// firstRetry is the time from a failed sync to the first retry, maxRetry the longest time between retries that cost little:
	// the cause of the failure may end at any moment. Retries use at most 1/(1+retryShare) of a core.
	firstRetry = 100 * time.Millisecond
	maxRetry   = 4 * time.Second
	retryShare = 4
	// maxRepairWait is the longest delay of the repair of rules that another program modifies all the time.
	maxRepairWait = 30 * time.Second
	// costlyFactor is how many times longer than a cheap repair a costly one is delayed at most. So the delays grow from one
	// repair to the next: a firewall that restarts flushes one table after the other, and is not a program that never ends.
	costlyFactor = 10
)

// pacer decides how soon the next sync may start: after the minimum period, or early if there is enough credit. Credit is
// processor time: it grows with time, up to maxCredit, and every sync uses some. The next sync is expected to cost as much
// as the last one. After a failure the minimum period always applies.
type pacer struct {
	min time.Duration
	// last is when the last sync ended, cost the processor time that it used.
	last   time.Time
	cost   time.Duration
	failed bool
	// credit is the credit at the time last; never negative.
	credit time.Duration
}

// wait returns how long to delay the next sync.
func (p *pacer) wait(now time.Time) time.Duration {
	hold := p.period() - now.Sub(p.last)
	if !p.failed && p.cost <= maxCredit {
		hold = min(hold, time.Duration(float64(p.cost-p.creditAt(now))/earlyShare))
	}
	return max(0, hold)
}

// period returns the minimum time from the end of the last sync to the start of the next. It leaves room for the sync that a change may just
// have missed and for its own, so that a change is in force after the minimum period, as long as syncs take less than a fifth of it: the
// longer they take, the more of a core that would need.
func (p *pacer) period() time.Duration {
	return p.min - 2*min(p.cost, max(0, p.min*2/5-p.cost))
}

// repair returns how long to delay the next sync if it repairs rules: not at all, because repairs have their own delays, except
// after a failure.
func (p *pacer) repair(now time.Time) time.Duration {
	if p.failed {
		return p.wait(now)
	}
	return 0
}

// creditAt returns the credit at a time after last.
func (p *pacer) creditAt(now time.Time) time.Duration {
	return min(maxCredit, p.credit+time.Duration(float64(now.Sub(p.last))*earlyShare))
}

// record updates the credit after a sync.
func (p *pacer) record(s *Sync) {
	p.cost, p.failed = s.Cost, s.Err() != nil
	p.credit = max(0, p.creditAt(s.Finished)-s.Cost)
	p.last = s.Finished
}

// retries returns the times between retries of a sync that fails: firstRetry, doubling up to maxRetry or a lower limit.
func retries(limit time.Duration) wait.Backoff {
	return wait.Backoff{Duration: firstRetry, Factor: 2, Cap: max(firstRetry, min(limit, maxRetry)), Steps: math.MaxInt}
}

// retryIn returns the time to the next retry after a sync that used this much processor time.
func (p *Proxy) retryIn(cost time.Duration) time.Duration {
	return max(p.retry.Step(), min(retryShare*cost, p.SyncPeriod))
}

// quietTime is how long the rules must have been unmodified for the next repair to start at once.
const quietTime = time.Minute

// repairs decides when to repair rules that were modified externally, by family: the first time at once, and then with growing
// delays, so that a program that modifies them all the time costs little. The delays are those of failed syncs.
type repairs map[cluster.Family]*repair

// repair is the state of one family's repairs.
type repair struct {
	retry wait.Backoff
	// last is when the last modification was found. due is when its repair is; the zero time if there was a sync since.
	last, due time.Time
}

// synced notes a sync, which repairs everything.
func (r repairs) synced() {
	for _, one := range r {
		one.due = time.Time{}
	}
}

// wait returns how long to delay the repair of what was found now, at most limit: much later the proxy would not count as healthy.
// cost is that of the last sync.
func (r repairs) wait(now time.Time, cost, limit time.Duration, found []backend.Drift) time.Duration {
	for _, drift := range found {
		if r[drift.Family] == nil {
			r[drift.Family] = &repair{}
		}
		r[drift.Family].found(now, cost, min(limit, maxRepairWait))
	}
	soonest := maxRepairWait
	for _, one := range r {
		if !one.due.IsZero() {
			soonest = min(soonest, one.due.Sub(now))
		}
	}
	return max(0, soonest)
}

// found notes a modification, and decides when it is repaired if that is not decided yet.
func (r *repair) found(now time.Time, cost, limit time.Duration) {
	if r.last.IsZero() || now.Sub(r.last) > quietTime {
		r.retry, r.due = retries(limit), now
	} else if r.due.IsZero() {
		step := r.retry.Step()
		r.due = now.Add(max(step, min(retryShare*cost, costlyFactor*step, limit)))
	}
	r.last = now
}

// alarm is the timer of the next sync.
type alarm struct {
	timer *time.Timer
	// at is when it fires; the zero time if no sync is due.
	at time.Time
}

// newAlarm returns an alarm that fires at once.
func newAlarm() *alarm { return &alarm{time.NewTimer(0), time.Now()} }

// advance makes it fire after some time at the latest.
func (a *alarm) advance(in time.Duration) {
	if a.at.IsZero() || time.Until(a.at) > in {
		a.timer.Reset(in)
		a.at = time.Now().Add(in)
	}
}

func (a *alarm) stop() { a.timer.Stop() }
