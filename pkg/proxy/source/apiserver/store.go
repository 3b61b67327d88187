package apiserver

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// store receives a Reflector's objects and passes them to the Builder. It keeps none of them.
type store struct {
	*resource
	builder *cluster.Builder
	logger  klog.Logger
	// stopped reports whether the Source has ended. The Reflector may end later; its objects are ignored then.
	stopped func() bool
	synced  chan struct{} // closed when a list has arrived completely
	listed  func()        // called when synced is closed

	mu    sync.Mutex
	guard guard
	// invalid are the objects with problems; their state is the resource version.
	invalid logonce.Conditions[cache.ObjectName]
}

var _ cache.TransformingStore = (*store)(nil)

func newStore(ctx context.Context, r *resource, b *cluster.Builder, options *Options) *store {
	s := &store{
		resource: r,
		builder:  b,
		logger:   klog.FromContext(ctx).WithValues("resource", r.name),
		stopped:  func() bool { return ctx.Err() != nil },
		synced:   make(chan struct{}),
	}
	s.guard = guard{off: options.TrustLists || r.endpoints == nil, resource: r.name,
		clock: options.clock, onDoubt: options.OnDoubt, expire: s.expire, logger: s.logger}
	return s
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error { return s.take(object) }

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.take(object) }

// Transformer implements cache.TransformingStore: the Reflector keeps the name instead of the object.
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

// take passes an object to the Builder, and logs the problems that it reports.
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
		s.invalid.Ended(name)
		return nil
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if version := accessor.GetResourceVersion(); s.invalid.Changed(name, version) || version == "" {
		s.logger.Error(problems, "Ignoring invalid fields of an object", "object", name, "resourceVersion", version)
	}
	return nil
}

// Delete implements cache.ReflectorStore. It is called for deletions in a watch, which the guard does not hold back.
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

// drop deletes objects from the Builder. The caller holds the lock.
func (s *store) drop(names []cache.ObjectName) {
	if s.stopped() || len(names) == 0 {
		return
	}
	for _, name := range names {
		s.invalid.Ended(name)
	}
	// Deletions cause no Problems.
	_ = s.builder.Update(func(u *cluster.Update) {
		for _, name := range names {
			s.remove(u, name)
		}
	})
}

// Replace implements cache.ReflectorStore. It is called with the names of all objects, which have already been
// applied, and deletes all other objects, unless the guard holds them back.
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
			return fmt.Errorf("unexpected item %T in a list", item)
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

// expire deletes the objects that a doubt held back.
func (s *store) expire(d *doubt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(s.guard.release(d))
}

// listBegins is called before each list request.
func (s *store) listBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard.known = s.builder.Endpoints()
}

// markSynced closes synced.
func (s *store) markSynced() {
	select {
	case <-s.synced:
	default:
		s.listed()
		close(s.synced)
	}
}

// doWithout records that an optional resource is not available.
func (s *store) doWithout() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markSynced()
}

// Resync implements cache.ReflectorStore. The Builder needs no resync.
func (s *store) Resync() error { return nil }

func nameOf(object any) (cache.ObjectName, error) {
	name, err := cache.ObjectToName(object)
	if err != nil {
		return cache.ObjectName{}, fmt.Errorf("the API server sent %T: %w", object, err)
	}
	return name, nil
}
