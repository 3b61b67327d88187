package proxy

import (
	"cmp"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// partShare is the share of a core that parts of expensive changes may use in the long run, maxPartCredit what they may use
	// at once. Together they bound what parts use in any minute: 2 s + 15 % of 60 s is 11 s, less than a quarter of a core also with the
	// early syncs of others (see maxCredit).
	partShare     = 0.15
	maxPartCredit = 2 * time.Second
	// restPerLate is how long a part rests for the time in which it made a change of others, which arrived then, take longer than
	// promptly, because a sync takes so long by itself: one change in three hundred meets that. It rests for maxPartRest at most.
	restPerLate = 300
	promptly    = time.Second
	maxPartRest = 3 * time.Minute
	// firstPart is the size of the first part, in elements of plan.Limit. The next ones follow from the time that it takes,
	// between minPart, because every sync has costs of its own, and maxPart.
	firstPart, minPart, maxPart = 4096, 512, 32768
	// smallChanges is how many elements of a namespace's changes need no turn.
	smallChanges = 512
	// wholeRoute is the size up to which a route changes whole: in nftables mode each new size of a pool costs a walk through all
	// endpoints.
	wholeRoute = 4096
	// partPerWaiting is how many elements of a part there are at least for each Service that waits: each costs something by itself
	// in every sync.
	partPerWaiting = 16
	// delayedAfter is how long a change waits, or will wait, if users are notified.
	delayedAfter = 5 * time.Second
)

// parts decides how much of the changes that wait for their turn a sync includes (see plan.Advance), so that no Service delays
// the others.
type parts struct {
	// time is how long a part should take; 0 means that no change waits.
	time time.Duration
	size int
	// base is how long a sync takes without a part, about.
	base time.Duration
	// included means that the last sync included a part.
	included bool
	// credit is processor time at the time last. It grows up to maxPartCredit, and each part uses some; below 0 the parts rest.
	credit time.Duration
	last   time.Time
	// since is when each change that waits began to.
	since map[cluster.ServiceName]time.Time
}

// Delay is a Service whose last change, or a part of it, waits for its turn since a time.
type Delay struct {
	Service cluster.ServiceName
	UID     string
	Since   time.Time
}

// rest returns how long the next part has to wait.
func (p *parts) rest(now time.Time) time.Duration {
	return max(0, time.Duration(-float64(p.creditAt(now))/partShare))
}

func (p *parts) creditAt(now time.Time) time.Duration {
	if p.last.IsZero() {
		return maxPartCredit
	}
	return min(maxPartCredit, p.credit+time.Duration(float64(now.Sub(p.last))*partShare))
}

// limit returns the limit of a sync of a snapshot after a plan, which may be nil; nil if there is none. After a part, other changes come
// alone, so that none of them waits for two parts.
func (p *parts) limit(now time.Time, before *plan.Plan, snap *cluster.Snapshot) *plan.Limit {
	if p.time == 0 || before == nil {
		return nil
	}
	if p.size == 0 {
		p.size = firstPart
	}
	limit := &plan.Limit{Small: smallChanges, Whole: wholeRoute}
	if p.rest(now) == 0 && (!p.included || !before.Lacks(snap)) {
		limit.Part = max(p.size, partPerWaiting*before.Waits())
	}
	return limit
}

// record notes a sync with a limit, before which there was an earlier plan.
func (p *parts) record(s *Sync, limit *plan.Limit, before *plan.Plan) {
	defer p.follow(s) // when the credit, and so the rest, is known
	took := s.Finished.Sub(s.Started)
	if p.included = limit != nil && limit.Part > 0 && before.Waits()+s.Plan.Waits() > 0; !p.included {
		if limit != nil && s.Err() == nil && s.wrote() {
			p.base = cmp.Or(p.base, took)
			p.base += (took - p.base) / 4
		}
		return
	}
	aim := max(p.time, p.base)
	// A change of others that arrived in so much of the part's time, from its beginning, is not prompt: it waits for the end, and for a sync of
	// its own.
	late := min(s.Cost, s.Cost+p.base-promptly)
	cost := max(s.Cost, time.Duration(partShare*float64(min(restPerLate*late, maxPartRest)))) // in the rest, the credit grows by as much
	// The part did not cause a reading of the kernel.
	if s.read() {
		cost = min(cost, aim)
	}
	p.credit, p.last = p.creditAt(s.Finished)-cost, s.Finished
	if limit.Part > p.size || s.read() || s.Err() != nil { // its time does not follow from the size
		return
	}
	switch fits := int(float64(p.size) * min(2, float64(aim)/float64(max(took-p.base, time.Microsecond)))); {
	case fits < p.size:
		p.size = max(minPart, fits, p.size/2)
	case s.Plan.Waits() > 0: // it was a whole part
		p.size = min(maxPart, fits)
	}
}

// again returns how soon a sync that succeeded is followed by another one without a change, 0 if by none.
func (p *parts) again(s *Sync) time.Duration {
	asked := s.again()
	if s.Plan.Waits() == 0 {
		return asked
	}
	part := max(p.rest(s.Finished), time.Nanosecond)
	if asked > 0 {
		return min(asked, part)
	}
	return part
}

// follow notes what waits, and adds to the sync what will have waited for long when its turn comes: there may be no other sync before.
func (p *parts) follow(s *Sync) {
	since, turn := make(map[cluster.ServiceName]time.Time), s.Finished.Add(p.rest(s.Finished))
	for name, uid := range s.Plan.Waiting() {
		began, ok := p.since[name]
		if !ok {
			began = s.Started
		}
		since[name] = began
		if turn.Sub(began) > delayedAfter {
			s.Delayed = append(s.Delayed, Delay{name, uid, began})
		}
	}
	p.since = since
}
