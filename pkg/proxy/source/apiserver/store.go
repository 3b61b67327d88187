package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
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
	// unlisted are the known objects that the list in progress has not contained so far.
	unlisted map[cache.ObjectName]struct{}
	// invalid are the objects with problems; their state is the resource version. Their authors cannot fill the log.
	invalid logonce.Conditions[cache.ObjectName]
}

var _ cache.ReflectorStore = (*store)(nil)

func newStore(ctx context.Context, r *resource, b *cluster.Builder, options *Options) *store {
	s := &store{
		resource: r,
		builder:  b,
		logger:   klog.FromContext(ctx).WithValues("resource", r.Name),
		stopped:  func() bool { return ctx.Err() != nil },
		synced:   make(chan struct{}),
		invalid: logonce.Conditions[cache.ObjectName]{Rate: logonce.Rate{Burst: 20, Every: 30 * time.Second},
			Group: func(name cache.ObjectName) string { return name.Namespace }},
	}
	s.guard = guard{off: options.TrustLists || r.endpoints == nil, clock: options.clock, onHeld: options.OnHeld, expire: s.expire, logger: s.logger}
	return s
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error { return s.take(object) }

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.take(object) }

// takeListed takes an event of a streamed list. Changes may be among them, because the server waits for its cache to be
// recent enough.
func (s *store) takeListed(event watch.Event) error {
	if got, want := reflect.TypeOf(event.Object), reflect.TypeOf(s.Example); got != want {
		return fmt.Errorf("the API server sent %v instead of %v", got, want)
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		return s.take(event.Object)
	case watch.Deleted:
		name, err := nameOf(event.Object)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unlisted[name] = struct{}{}
	}
	return nil // nothing else is of interest before the list ends
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
	delete(s.unlisted, name)
	problems := s.builder.Update(func(u *cluster.Update) { s.set(u, object) })
	if problems == nil {
		s.invalid.Ended(name)
		return nil
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	version := accessor.GetResourceVersion()
	if s.invalid.Changed(name, cmp.Or(version, problems.Error())) {
		s.logger.Error(problems, "Ignoring invalid fields of an object", "object", name, "resourceVersion", version, "notLogged", s.invalid.NotLogged(name))
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
	s.drop([]cache.ObjectName{name}, s.remove)
	return nil
}

// drop calls remove for objects. The caller holds the lock.
func (s *store) drop(names []cache.ObjectName, remove func(u *cluster.Update, name cache.ObjectName)) {
	if s.stopped() || len(names) == 0 {
		return
	}
	for _, name := range names {
		s.invalid.Ended(name)
		delete(s.unlisted, name)
	}
	// Deletions cause no Problems.
	_ = s.builder.Update(func(u *cluster.Update) {
		for _, name := range names {
			remove(u, name)
		}
	})
}

// Replace implements cache.ReflectorStore. It is called at the end of a list, whose objects have already been applied, and
// deletes all other objects, unless the guard holds them back.
func (s *store) Replace([]any, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() {
		return nil
	}
	var missing []lost
	_ = s.builder.Update(func(u *cluster.Update) {
		for name := range s.unlisted {
			l := lost{name: name}
			if s.endpoints != nil {
				l.endpoints = s.endpoints(u, name)
			}
			missing = append(missing, l)
		}
	})
	s.unlisted = nil
	s.drop(s.guard.filter(missing), s.lose)
	s.markSynced()
	return nil
}

// lose records that lists lack an object.
func (s *store) lose(u *cluster.Update, name cache.ObjectName) {
	if s.miss != nil {
		s.miss(u, name)
	} else {
		s.remove(u, name)
	}
}

// expire deletes the objects whose removal was held back.
func (s *store) expire(r *removals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(s.guard.release(r), s.lose)
}

// listBegins is called before each list request.
func (s *store) listBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard.known = s.builder.Endpoints()
	s.unlisted = map[cache.ObjectName]struct{}{}
	_ = s.builder.Update(func(u *cluster.Update) {
		for name := range s.known(u) {
			s.unlisted[name] = struct{}{}
		}
	})
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
	if err == nil && name.Name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		return cache.ObjectName{}, fmt.Errorf("the API server sent %T: %w", object, err)
	}
	return name, nil
}
