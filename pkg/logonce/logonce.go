// Package logonce decides when to log a condition that lasts, such as a request that fails each time it is retried. It is
// logged when it begins, when it changes, perhaps again now and then while it lasts, and when it ends.
//
// The package does not log itself, so that every caller keeps its own constant message, keys and level:
//
//	if err := check(); err == nil {
//		if failing.Ended() {
//			logger.Info("Check succeeded again")
//		}
//	} else if failing.Changed(err.Error()) {
//		logger.Error(err, "Check failed")
//	}
package logonce

import (
	"maps"
	"time"
)

// Reminder is how often most conditions that need attention are logged again while they last. Logs are rotated: a line
// that is hours old may be gone.
const Reminder = 5 * time.Minute

// Condition is one condition. The zero value has not begun, and is logged again only when it changes. A Condition must
// not be used concurrently.
type Condition struct {
	// Again is the time after which an unchanged condition is logged again; 0 is never.
	Again time.Duration
	// Settle is how long a condition has to be absent before it counts as ended. Use it for what is noticed often and
	// may come and go, so that each time is not a new one.
	Settle time.Duration
	// Calm is the least time between two lines while it lasts: use it if the state may change each time, as an error with a
	// number in it. 0 logs every change.
	Calm time.Duration

	// lasts reports whether the condition has been logged and has not ended, state is the state that was logged, and at
	// when.
	lasts bool
	state string
	at    time.Time
	// absent is when the condition was first found absent since it was last noticed; the zero time if it was not.
	absent time.Time
}

// Changed notes that the condition holds, and reports whether to log it. state describes it, usually the text of an
// error: another state than the one logged is logged at once, or after Calm.
func (c *Condition) Changed(state string) bool {
	now := time.Now()
	c.absent = time.Time{}
	if c.lasts && (c.state == state && (c.Again == 0 || now.Sub(c.at) < c.Again) || now.Sub(c.at) < c.Calm) {
		return false
	}
	c.lasts, c.state, c.at = true, state, now
	return true
}

// Ended notes that the condition does not hold, and reports whether to log that: if it was logged, and is absent for
// Settle.
func (c *Condition) Ended() bool {
	if !c.lasts {
		return false
	}
	now := time.Now()
	if c.absent.IsZero() {
		c.absent = now
	}
	if now.Sub(c.absent) < c.Settle {
		return false
	}
	c.lasts, c.state, c.absent = false, "", time.Time{}
	return true
}

// Conditions are conditions of one kind, each with a key. The zero value has none. They must not be used concurrently.
type Conditions[K comparable] struct {
	// Again is that of every [Condition].
	Again time.Duration
	// Rate bounds the lines of each group. Use it if others can cause conditions, so that they cannot fill the log. A condition
	// that is not logged for this reason has not begun: it is logged when it is noticed again and the rate allows it.
	Rate Rate
	// Group returns the group of a key, such as the namespace of an object. All keys are in one group if it is nil.
	Group func(key K) string

	all    map[K]*Condition
	groups map[string]*group
	swept  time.Time
}

// Rate is how many lines may be logged: Burst at once, and another one after each Every. The zero value is no limit.
type Rate struct {
	Burst int
	Every time.Duration
}

// group is what the lines of a group have used of its rate.
type group struct {
	// free is when the group may log as many lines at once as one that has logged none.
	free      time.Time
	notLogged int
}

// Changed is [Condition.Changed] of the condition with this key, within the rate of its group.
func (c *Conditions[K]) Changed(key K, state string) bool {
	one := c.all[key]
	if one == nil {
		if c.all == nil {
			c.all = map[K]*Condition{}
		}
		one = &Condition{Again: c.Again}
		c.all[key] = one
	}
	before := *one
	if !one.Changed(state) {
		return false
	}
	if !c.allowed(key) {
		*one = before
		return false
	}
	return true
}

// allowed uses the rate of a key's group for a line, and reports whether there was any left.
func (c *Conditions[K]) allowed(key K) bool {
	if c.Rate == (Rate{}) {
		return true
	}
	now := time.Now()
	if now.Sub(c.swept) >= c.Rate.Every {
		c.swept = now
		maps.DeleteFunc(c.groups, func(_ string, g *group) bool { return !g.free.After(now) && g.notLogged == 0 })
	}
	g := c.groups[c.groupOf(key)]
	if g == nil {
		if c.groups == nil {
			c.groups = map[string]*group{}
		}
		g = &group{free: now}
		c.groups[c.groupOf(key)] = g
	}
	if g.free.Before(now) {
		g.free = now
	}
	if g.free.Sub(now) > time.Duration(c.Rate.Burst-1)*c.Rate.Every {
		g.notLogged++
		return false
	}
	g.free = g.free.Add(c.Rate.Every)
	return true
}

func (c *Conditions[K]) groupOf(key K) string {
	if c.Group == nil {
		return ""
	}
	return c.Group(key)
}

// NotLogged returns how many lines of a key's group the rate has suppressed since it was called last. Log it with a line that
// is allowed.
func (c *Conditions[K]) NotLogged(key K) (lines int) {
	if g := c.groups[c.groupOf(key)]; g != nil {
		lines, g.notLogged = g.notLogged, 0
	}
	return lines
}

// Ended is [Condition.Ended] of the condition with this key.
func (c *Conditions[K]) Ended(key K) bool {
	one := c.all[key]
	delete(c.all, key)
	return one != nil && one.lasts
}

// EndedExcept ends all conditions but those that hold, and returns the keys of the ended ones in no particular order.
func (c *Conditions[K]) EndedExcept(holds func(key K) bool) []K {
	var ended []K
	for key := range c.all {
		if !holds(key) && c.Ended(key) {
			ended = append(ended, key)
		}
	}
	return ended
}
