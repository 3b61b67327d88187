package apiserver

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// store is where a Reflector thinks that it keeps objects. It tells the Builder of them and forgets them.
type store struct {
	*resource
	builder *cluster.Builder
	logger  klog.Logger
	// stopped tells that the Source has ended; the Reflector may end later, and must not be heard any more.
	stopped func() bool
	synced  chan struct{} // closed when a list has arrived in full
	listed  func()        // called when it is closed

	mu    sync.Mutex
	guard guard
	// told has the version of every object about whose problems a person has been told.
	told map[cache.ObjectName]string
}

var _ cache.TransformingStore = (*store)(nil)

func newStore(ctx context.Context, r *resource, b *cluster.Builder, options *Options) *store {
	s := &store{
		resource: r,
		builder:  b,
		logger:   klog.FromContext(ctx).WithValues("resource", r.name),
		stopped:  func() bool { return ctx.Err() != nil },
		synced:   make(chan struct{}),
		told:     map[cache.ObjectName]string{},
	}
	s.guard = guard{off: options.TrustLists || r.endpoints == nil, resource: r.name,
		clock: options.Clock, onDoubt: options.OnDoubt, expire: s.expire, logger: s.logger}
	return s
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error { return s.take(object) }

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.take(object) }

// Transformer implements cache.TransformingStore: the Reflector keeps a name in place of an object.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if listed, ok := object.(listed); ok {
			return listed, nil
		}
		name, err := nameOf(object)
		if err != nil {
			return nil, err
		}
		return listed(name), s.take(object)
	}
}

// take tells the Builder how an object is now, and a person what of it cannot be used.
func (s *store) take(object any) error {
	name, err := nameOf(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() {
		return nil
	}
	s.guard.exists(name)
	problems := s.builder.Update(func(u *cluster.Update) { s.set(u, object) })
	if problems == nil {
		delete(s.told, name)
		return nil
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if version := accessor.GetResourceVersion(); version == "" || s.told[name] != version {
		s.told[name] = version
		s.logger.Error(problems, "A part of an object cannot be used and is left out", "object", name, "resourceVersion", version)
	}
	return nil
}

// Delete implements cache.ReflectorStore. It is called for an event that says so, and believed.
func (s *store) Delete(object any) error {
	name, err := nameOf(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop([]cache.ObjectName{name})
	return nil
}

// drop tells the Builder that objects are gone. The caller holds the lock.
func (s *store) drop(names []cache.ObjectName) {
	if s.stopped() || len(names) == 0 {
		return
	}
	for _, name := range names {
		delete(s.told, name)
	}
	// A removal has no parts that could not be used.
	_ = s.builder.Update(func(u *cluster.Update) {
		for _, name := range names {
			s.remove(u, name)
		}
	})
}

// Replace implements cache.ReflectorStore. It is called with the names of all objects there are, which have
// been taken one by one already, and removes the others, as far as the guard believes it.
func (s *store) Replace(items []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() {
		return nil
	}
	there := make(map[cache.ObjectName]bool, len(items))
	for _, item := range items {
		name, ok := item.(listed)
		if !ok {
			return fmt.Errorf("the list has %T where a name is wanted", item)
		}
		there[cache.ObjectName(name)] = true
	}
	var missing []lost
	_ = s.builder.Update(func(u *cluster.Update) {
		for name := range s.known(u) {
			if !there[name] {
				l := lost{name: name}
				if s.endpoints != nil {
					l.endpoints = s.endpoints(u, name)
				}
				missing = append(missing, l)
			}
		}
	})
	s.drop(s.guard.judge(missing))
	s.markSynced()
	return nil
}

// expire drops what has been doubted for long enough.
func (s *store) expire(d *doubt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(s.guard.release(d))
}

// listBegins is called before a list of all objects is asked for.
func (s *store) listBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard.known = s.builder.Endpoints()
}

// markSynced notes that there is nothing to wait for any more.
func (s *store) markSynced() {
	select {
	case <-s.synced:
	default:
		s.listed()
		close(s.synced)
	}
}

// doWithout notes that an optional resource is not to be had.
func (s *store) doWithout() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markSynced()
}

// Resync implements cache.ReflectorStore. What the Builder was told stays told.
func (s *store) Resync() error { return nil }

func nameOf(object any) (cache.ObjectName, error) {
	name, err := cache.ObjectToName(object)
	if err != nil {
		return cache.ObjectName{}, fmt.Errorf("the API server sent %T: %w", object, err)
	}
	return name, nil
}
