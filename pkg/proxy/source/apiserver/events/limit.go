package events

import (
	"context"
	"sync"

	eventsv1 "k8s.io/api/events/v1"
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

// occurrence is an Event to publish.
type occurrence struct {
	// namespace is the object's; the Event of an object without one is in another namespace.
	namespace string
	event     *eventsv1.Event
	// once reports that it is not published if it exists.
	once bool
}

// queue holds pending Events. It is safe for concurrent use.
type queue struct {
	all chan occurrence
	mu  sync.Mutex
	of  map[string]int // by namespace
}

func newQueue(size int) *queue {
	return &queue{all: make(chan occurrence, size), of: map[string]int{}}
}

// put adds an Event and reports whether there was room. A namespace has at most as many as there is room left, so that nobody who
// may write objects in one can displace the Events of others.
func (q *queue) put(o occurrence) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[o.namespace] >= cap(q.all)-len(q.all) {
		return false
	}
	q.of[o.namespace]++
	q.all <- o // which does not block: only put adds
	return true
}

// taken records that an Event was received.
func (q *queue) taken(o occurrence) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[o.namespace]--; q.of[o.namespace] == 0 {
		delete(q.of, o.namespace)
	}
}

// each calls take for each Event until ctx ends.
func (q *queue) each(ctx context.Context, take func(occurrence)) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-q.all:
			q.taken(o)
			take(o)
		}
	}
}

// rest removes and returns the Events that are there.
func (q *queue) rest() (all []occurrence) {
	for {
		select {
		case o := <-q.all:
			q.taken(o)
			all = append(all, o)
		default:
			return all
		}
	}
}
