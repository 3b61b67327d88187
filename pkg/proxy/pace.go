package proxy

import "time"

const (
	// cheapShare is the part of the time that syncing may take without being held back.
	cheapShare = 0.05
	// maxCredit is how much unused time counts for later.
	maxCredit = 50 * time.Millisecond

	// firstRetry is how soon after a sync that failed the next is due.
	firstRetry = 100 * time.Millisecond
)

// pacer decides how soon the next sync may begin. What is heavy keeps the minimum period, and so does what
// failed; everything else is free as long as it takes less than cheapShare of the time.
type pacer struct {
	min time.Duration
	// last is when the last sync ended, heavy whether it keeps the next at a distance.
	last  time.Time
	heavy bool
	// credit is the time that cheap syncs may still take, as of last.
	credit time.Duration
}

// wait is how long from now the next sync has to be held back.
func (p *pacer) wait(now time.Time) time.Duration {
	idle := now.Sub(p.last)
	hold := p.min
	if !p.heavy {
		short := -p.creditAt(now)
		hold = min(hold, idle+time.Duration(float64(short)/cheapShare))
	}
	return max(0, hold-idle)
}

// creditAt is the credit at a time after last.
func (p *pacer) creditAt(now time.Time) time.Duration {
	return min(maxCredit, p.credit+time.Duration(float64(now.Sub(p.last))*cheapShare))
}

// record takes note of a sync.
func (p *pacer) record(s *Sync) {
	p.heavy = false
	for _, result := range s.Results {
		p.heavy = p.heavy || result.Heavy || result.Err != nil
	}
	p.credit = p.creditAt(s.Finished) - s.Finished.Sub(s.Started)
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
