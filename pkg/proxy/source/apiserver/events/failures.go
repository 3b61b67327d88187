package events

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
)

// sink publishes the broadcaster's Events and notes which attempts failed.
type sink struct {
	events.EventSink
	failures failures
	// created counts the Events that the server has answered for.
	created atomic.Int64
}

// Create implements events.EventSink.
func (s *sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	s.created.Add(1)
	s.failures.note(ctx, create, event, err)
	return created, err
}

// Patch implements events.EventSink. It is called for an Event that happened again.
func (s *sink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	patched, err := s.EventSink.Patch(ctx, event, data)
	if !apierrors.IsNotFound(err) { // then the Event is created again
		s.failures.note(ctx, patch, event, err)
	}
	return patched, err
}

// failures logs why Events cannot be published: each cause once, until a request with the same verb succeeds.
type failures struct {
	mu     sync.Mutex
	logger logr.Logger
	logged logonce.Conditions[cause]
}

// cause is why a request failed. The reason is empty if the server cannot be reached.
type cause struct {
	verb   string
	reason metav1.StatusReason
}

// The verbs.
const (
	create = "create"
	patch  = "patch"
)

// start sets the logger.
func (f *failures) start(logger logr.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logger, f.logged = logger, logonce.Conditions[cause]{}
}

// note records the result of an attempt to publish an Event.
func (f *failures) note(ctx context.Context, verb string, event *eventsv1.Event, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case ctx.Err() != nil || apierrors.IsAlreadyExists(err):
		return
	case err == nil:
		if ended := f.logged.EndedExcept(func(c cause) bool { return c.verb != verb && c.reason != "" }); len(ended) > 0 {
			f.logger.Info("Events are published again", "verb", verb)
		}
		return
	}
	why := cause{verb, apierrors.ReasonForError(err)}
	about := []any{"kind", event.Regarding.Kind, "namespace", event.Regarding.Namespace, "name", event.Regarding.Name, "reason", event.Reason}
	if !f.logged.Changed(why, "") {
		f.logger.V(4).Info("Failed to publish another event", append(about, "err", err)...)
		return
	}
	hint := "it will be retried for some minutes"
	switch {
	case apierrors.IsForbidden(err):
		hint = "allow " + verb + " of events of events.k8s.io: bind the ClusterRole system:node-proxier to the proxy's user"
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		hint = "it is not retried; it has no effect on Services"
	}
	f.logger.Error(err, "Failed to publish an event; later failures with the same cause are not logged", append(about, "hint", hint)...)
}
