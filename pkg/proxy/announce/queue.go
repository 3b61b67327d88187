package announce

import (
	"context"
	"maps"
	"slices"
	"sync"

	eventsv1 "k8s.io/api/events/v1"
)

// occurrence is an Event to publish.
type occurrence struct {
	// namespace is the object's; the Event of an object without one is in another namespace.
	namespace string
	event     *eventsv1.Event
	// once reports that it is not published if it exists.
	once bool
}

// queue holds pending Events, and publishes those of each namespace one after another: trouble with those of one delays no other. It
// is safe for concurrent use.
type queue struct {
	mu          sync.Mutex
	limit, size int
	// of holds the Events by namespace. While run runs, the first one of each is being published.
	of map[string][]occurrence
	// publish is nil unless run runs.
	publish   func(occurrence) bool
	following sync.WaitGroup
}

func newQueue(limit int) *queue { return &queue{limit: limit, of: map[string][]occurrence{}} }

// put adds an Event and reports whether there was room. A namespace has at most as many as there is room left, so that nobody who
// may write objects in one can displace the Events of others.
func (q *queue) put(o occurrence) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.of[o.namespace]) >= q.limit-q.size {
		return false
	}
	q.size++
	q.of[o.namespace] = append(q.of[o.namespace], o)
	if len(q.of[o.namespace]) == 1 {
		q.follow(o.namespace)
	}
	return true
}

// run publishes Events until ctx ends. publish returns false to keep the Event, if ctx has ended.
func (q *queue) run(ctx context.Context, publish func(occurrence) bool) {
	q.mu.Lock()
	q.publish = publish
	for namespace := range q.of {
		q.follow(namespace)
	}
	q.mu.Unlock()
	<-ctx.Done()
	q.mu.Lock()
	q.publish = nil
	q.mu.Unlock()
	q.following.Wait()
}

// follow publishes the Events of a namespace in the background, until there are none. The caller holds the lock.
func (q *queue) follow(namespace string) {
	publish := q.publish
	if publish == nil {
		return
	}
	next := q.of[namespace][0]
	q.following.Go(func() {
		for more := true; more && publish(next); {
			next, more = q.published(namespace)
		}
	})
}

// published removes the first Event of a namespace and returns the next one.
func (q *queue) published(namespace string) (next occurrence, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size--
	rest := q.of[namespace][1:]
	if len(rest) == 0 {
		delete(q.of, namespace)
		return next, false
	}
	q.of[namespace] = rest
	return rest[0], true
}

// rest removes and returns the Events that are there, those of objects without a namespace first.
func (q *queue) rest() (all []occurrence) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, namespace := range slices.Sorted(maps.Keys(q.of)) {
		all = append(all, q.of[namespace]...)
	}
	q.size = 0
	clear(q.of)
	return all
}
