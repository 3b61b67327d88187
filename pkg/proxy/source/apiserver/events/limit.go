package events

import (
	"context"
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

// The limits of Events about one object for one reason: whoever may change the object causes them, and every node publishes
// each. They are those of client-go's filter for the older Events API (k8s.io/client-go/tools/record).
const (
	burst = 25
	// rate is in Events a second.
	rate = 1.0 / 300
	// maxObjects is the number of objects that are remembered.
	maxObjects = 4096
)

// limiter limits the rate of Events. It is safe for concurrent use.
type limiter struct {
	mu  sync.Mutex
	all *lru.Cache
}

func newLimiter() *limiter { return &limiter{all: lru.New(maxObjects)} }

// allows reports whether an Event may be published, and counts it.
func (l *limiter) allows(e *Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := [...]string{e.Kind, e.Namespace, e.Name, e.Reason}
	known, ok := l.all.Get(key)
	if !ok {
		known = flowcontrol.NewTokenBucketPassiveRateLimiter(rate, burst)
		l.all.Add(key, known)
	}
	return known.(flowcontrol.PassiveRateLimiter).TryAccept() //nolint:forcetypeassert // only this method adds
}

// queue holds pending events. It is safe for concurrent use.
type queue[E any] struct {
	all chan pending[E]
	mu  sync.Mutex
	of  map[string]int // by namespace
}

// pending is an event about an object in a namespace.
type pending[E any] struct {
	namespace string
	event     E
}

func newQueue[E any](size int) *queue[E] {
	return &queue[E]{all: make(chan pending[E], size), of: map[string]int{}}
}

// put adds an event and reports whether there was room. A namespace has at most as many as there is room left, so that nobody who
// may write objects in one can displace the events of others.
func (q *queue[E]) put(namespace string, event E) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[namespace] >= cap(q.all)-len(q.all) {
		return false
	}
	q.of[namespace]++
	q.all <- pending[E]{namespace, event} // which does not block: only put adds
	return true
}

// taken returns the event that was received.
func (q *queue[E]) taken(p pending[E]) E {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[p.namespace]--; q.of[p.namespace] == 0 {
		delete(q.of, p.namespace)
	}
	return p.event
}

// each calls take for each event until ctx ends.
func (q *queue[E]) each(ctx context.Context, take func(E)) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-q.all:
			take(q.taken(p))
		}
	}
}

// rest calls take for each event that is there.
func (q *queue[E]) rest(take func(E)) {
	for {
		select {
		case p := <-q.all:
			take(q.taken(p))
		default:
			return
		}
	}
}
