package proxy

import "time"

const (
	// earlyShare is the part of a core that early syncs may use in the long run.
	earlyShare = 0.03
	// maxCredit is how much unused processor time is kept for later. With earlyShare it bounds what early syncs use in any
	// minute: 1 s + 3 % of 60 s is 2.8 s, less than 5 % of a core.
	maxCredit = time.Second

	// firstRetry is how soon after a sync that failed the next is due.
	firstRetry = 100 * time.Millisecond
)

// pacer decides how soon the next sync may begin: after the minimum period, or early if there is credit for it. Processor
// time that is not used becomes credit, and every sync uses up credit. What a sync will use is taken to be what the last
// one used. After a failure the minimum period is always kept.
type pacer struct {
	min time.Duration
	// last is when the last sync ended, and cost the processor time that it used.
	last   time.Time
	cost   time.Duration
	failed bool
	// credit is the processor time that early syncs may use, as of last; never negative.
	credit time.Duration
}

// wait returns how long from now the next sync has to be held back.
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

// record takes note of a sync.
func (p *pacer) record(s *Sync) {
	p.cost, p.failed = s.Cost, s.Err() != nil
	p.credit = max(0, p.creditAt(s.Finished)-s.Cost)
	p.last = s.Finished
}

// backoff spaces the attempts after failures: firstRetry, and twice as long each time, up to a limit.
type backoff struct {
	last time.Duration
}

func (b *backoff) next(limit time.Duration) time.Duration {
	b.last = max(firstRetry, min(2*b.last, limit))
	return b.last
}
