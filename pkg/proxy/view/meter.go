package view

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// patience is how long a page waits for counters. After that it shows the last ones; the reading goes on.
	patience = 250 * time.Millisecond
	// readTimeout bounds a reading.
	readTimeout = 10 * time.Second
	// pause and rest bound the cost of readings: after each one, the next of the same subject begins no earlier than after pause, and
	// that of any subject no earlier than after rest times its duration. The first one of a subject may begin ahead of that.
	pause = time.Second
	rest  = 9
	ahead = 5 * time.Second
	// window is the time over which rates are computed, if pages are requested more often than that.
	window = 4 * time.Second
	// maxSubjects bounds the number of subjects in memory.
	maxSubjects = 20
)

// subject is what counters are read for: the addresses of all Services, or one Service with its endpoints.
type subject = cluster.ServiceName

// meter reads counters for pages, and remembers earlier readings for rates.
type meter struct {
	mu       sync.Mutex
	subjects map[subject]*measured
	// rested is when the next reading may begin, unless there is one now. They outlive the subjects.
	rested  time.Time
	reading bool
}

// measured are the readings of one subject.
type measured struct {
	counters
	// ended is closed when the current reading ends; nil if there is none. The next one may begin after next.
	ended chan struct{}
	next  time.Time
	asked time.Time
}

// counters are two readings; earlier may be nil.
type counters struct {
	now, earlier *backend.Connections
	err          error
}

// span returns the time between the readings; 0 if there is only one.
func (c *counters) span() time.Duration {
	if c.now == nil || c.earlier == nil {
		return 0
	}
	return c.now.At.Sub(c.earlier.At)
}

// rates returns the growth of the counters of routes per second; 0 without two readings.
func (c *counters) rates(routes iter.Seq[*plan.Route]) (connections, refused float64) {
	if c.span() == 0 {
		return 0, 0
	}
	for route := range routes {
		connections += c.rate(c.now.Frontends[route.Frontend], c.earlier.Frontends[route.Frontend])
		refused += c.rate(c.now.Refused[route.Frontend], c.earlier.Refused[route.Frontend])
	}
	return connections, refused
}

// rate returns the growth of a counter per second. A counter that is smaller than before was created again.
func (c *counters) rate(now, before uint64) float64 {
	if now < before {
		before = 0
	}
	return float64(now-before) / c.span().Seconds()
}

// note says what the counters mean.
func (c *counters) note() string {
	switch {
	case c.err != nil:
		return "There are no new counters: " + c.err.Error() + "."
	case c.now == nil:
		return "The counters are still being read."
	case c.span() == 0:
		return "Rates are known with the next reading."
	default:
		return "Rates are those of the last " + seconds(c.span().Seconds()) + "."
	}
}

func newMeter() *meter { return &meter{subjects: map[subject]*measured{}} }

// counters returns the counters of a subject: new ones if read returns soon, otherwise the last ones, if any.
func (m *meter) counters(ctx context.Context, of subject, read func(context.Context) (*backend.Connections, error)) counters {
	m.mu.Lock()
	now := time.Now()
	e := m.subjects[of]
	if e == nil {
		e = &measured{}
		m.subjects[of] = e
	}
	e.asked = now
	m.evict()
	rested := m.rested
	if e.now == nil && e.err == nil {
		rested = rested.Add(-ahead)
	}
	if e.ended == nil && !m.reading && !now.Before(e.next) && !now.Before(rested) {
		m.reading = true
		e.ended = make(chan struct{})
		go m.read(context.WithoutCancel(ctx), e, read)
	}
	ended := e.ended
	m.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-time.After(patience):
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.counters
}

// read reads once.
func (m *meter) read(ctx context.Context, e *measured, read func(context.Context) (*backend.Connections, error)) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := time.Now()
	counts, err := read(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.err = err; err == nil {
		if counts.At.IsZero() {
			counts.At = began
		}
		e.add(counts)
	}
	ended := time.Now()
	e.next = ended.Add(pause)
	if m.rested.Before(ended) {
		m.rested = ended
	}
	m.rested, m.reading = m.rested.Add(rest*ended.Sub(began)), false
	close(e.ended)
	e.ended = nil
}

// add records a reading.
func (e *measured) add(counts *backend.Connections) {
	switch {
	case e.now == nil:
	case !counts.At.After(e.now.At):
		return
	case e.earlier == nil || e.now.At.Sub(e.earlier.At) >= window:
		e.earlier = e.now
	}
	e.now = counts
}

// evict drops the subject that was requested least recently, if there are too many.
func (m *meter) evict() {
	if len(m.subjects) <= maxSubjects {
		return
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(m.subjects)), func(a, b subject) int {
		return m.subjects[a].asked.Compare(m.subjects[b].asked)
	})
	delete(m.subjects, oldest)
}

// forget drops all subjects.
func (m *meter) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.subjects)
}
