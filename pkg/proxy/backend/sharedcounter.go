package backend

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync/atomic"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// SharedCounter lets metrics, the API and the status page share one ConnectionCounter. It reads once at a time; callers that
// wait meanwhile share the next reading. A call never returns a reading that began before the call, so that a client can compare
// the counters before and after what it does.
type SharedCounter struct {
	counter ConnectionCounter
	// waiting is the number of calls that wait for their turn.
	waiting atomic.Int32
	// last holds the last reading of each family while other calls wait. The call that takes it out of the channel may read.
	last chan map[cluster.Family]*reading
}

// reading is the result of one reading, which is not modified.
type reading struct {
	began     time.Time
	routes    map[plan.Frontend]*plan.Route
	endpoints bool
	counts    *Connections
}

var _ ConnectionCounter = (*SharedCounter)(nil)

// NewSharedCounter returns the reader of a counter.
func NewSharedCounter(counter ConnectionCounter) *SharedCounter {
	s := &SharedCounter{counter: counter, last: make(chan map[cluster.Family]*reading, 1)}
	s.last <- map[cluster.Family]*reading{}
	return s
}

// Connections implements [ConnectionCounter]. It waits for its turn until ctx ends. The result has the time At and may
// contain counters of other routes; the caller must not modify it.
func (s *SharedCounter) Connections(ctx context.Context, family cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (*Connections, error) {
	asked := time.Now()
	last, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if s.waiting.Load() == 0 {
			clear(last) // no later call may use these readings
		}
		s.last <- last
	}()
	wanted := map[plan.Frontend]*plan.Route{}
	for route := range routes {
		wanted[route.Frontend] = route
	}
	if r := last[family]; r != nil && !r.began.Before(asked) && r.covers(wanted, endpoints) {
		return r.counts, nil
	}
	r := &reading{began: time.Now(), routes: wanted, endpoints: endpoints}
	if r.counts, err = s.counter.Connections(ctx, family, maps.Values(wanted), endpoints); err != nil {
		return nil, err
	}
	r.counts.At = r.began
	last[family] = r
	return r.counts, nil
}

// Counts implements [ConnectionCounter].
func (s *SharedCounter) Counts(family cluster.Family) Counting { return s.counter.Counts(family) }

// acquire waits until no other call reads.
func (s *SharedCounter) acquire(ctx context.Context) (map[cluster.Family]*reading, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case last := <-s.last:
		return last, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another reader of the counters: %w", ctx.Err())
	}
}

// covers reports whether a reading has what is wanted.
func (r *reading) covers(wanted map[plan.Frontend]*plan.Route, endpoints bool) bool {
	if endpoints && !r.endpoints {
		return false
	}
	for frontend, route := range wanted {
		if r.routes[frontend] != route {
			return false
		}
	}
	return true
}
