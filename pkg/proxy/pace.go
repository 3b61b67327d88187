package proxy

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// earlyShare is the share of a core that early syncs may use in the long run.
	earlyShare = 0.03
	// maxCredit is the maximum credit. Together with earlyShare it bounds what early syncs use in any minute:
	// 1 s + 3 % of 60 s is 2.8 s, less than 5 % of a core.
	maxCredit = time.Second

	// firstRetry is the time from a failed sync to the first retry, maxRetry the longest one for syncs that cost little: what
	// made them fail may end at any moment. Retries use at most 1/(1+retryShare) of a core.
	firstRetry = 100 * time.Millisecond
	maxRetry   = 4 * time.Second
	retryShare = 4
	// maxFight is the longest wait for the repair of rules that another program modifies all the time.
	maxFight = 30 * time.Second
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
	hold := p.min - now.Sub(p.last)
	if !p.failed && p.cost <= maxCredit {
		hold = min(hold, time.Duration(float64(p.cost-p.creditAt(now))/earlyShare))
	}
	return max(0, hold)
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

// peace is how long rules must not have been modified externally for the next repair to start at once.
const peace = time.Minute

// repairs decides when to repair rules that were modified externally: the first time at once, and then ever later, so that a
// fight with a program that writes all the time costs little. Its waits are those of failed syncs.
type repairs struct {
	retry wait.Backoff
	// last is when the last modification was found. due is when its repair is; the zero time if there was a sync since.
	last, due time.Time
}

// synced notes a sync, which repairs everything.
func (r *repairs) synced() { r.due = time.Time{} }

// wait returns how long to delay the repair of what was found now. cost is that of the last sync.
func (r *repairs) wait(now time.Time, cost time.Duration) time.Duration {
	if r.last.IsZero() || now.Sub(r.last) > peace {
		r.retry, r.due = retries(maxRetry), now
	} else if r.due.IsZero() {
		r.due = now.Add(max(r.retry.Step(), min(retryShare*cost, maxFight)))
	}
	r.last = now
	return max(0, r.due.Sub(now))
}
