package proxy

import "time"

const (
	// soonShare divides the time of one part of a check: the pause after it is that long. minPause is the shortest pause.
	soonShare = 8
	minPause  = 5 * time.Millisecond
)

// checks decides when to check for drift: when the Backend asks for it, but at most once in a period, or once in every
// period if the Backend cannot know.
type checks struct {
	period time.Duration
	// modified is the Backend's channel, nil if it has none. requested is the same channel while no check is due, otherwise
	// nil.
	modified, requested <-chan struct{}
	timer               *time.Timer // nil without checks
	// earliest is when the next check may begin.
	earliest time.Time
}

// newChecks returns checks. The first one is due after a period.
func newChecks(period time.Duration, modified <-chan struct{}) *checks {
	c := &checks{period: period, modified: modified}
	if period > 0 {
		c.timer = time.NewTimer(period)
	}
	return c
}

// due returns a channel that receives a value when a check is due.
func (c *checks) due() <-chan time.Time {
	if c.timer == nil {
		return nil
	}
	return c.timer.C
}

// schedule makes a check due as soon as it may begin.
func (c *checks) schedule() {
	c.requested = nil
	c.timer.Reset(time.Until(c.earliest))
}

// done is called after a check, with its error and whether it has parts left. The next part follows almost at once; a change
// that came meanwhile is programmed in between. A check that takes long, or hangs, leaves as much time for syncs. One that
// failed is repeated.
func (c *checks) done(begun time.Time, err error, soon bool) {
	now := time.Now()
	took := now.Sub(begun)
	c.earliest = begun.Add(max(c.period, 2*took))
	if soon && took < c.period {
		c.earliest = now.Add(max(took/soonShare, minPause))
	}
	if c.modified == nil || err != nil {
		c.schedule()
		return
	}
	c.requested = c.modified
}

func (c *checks) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
