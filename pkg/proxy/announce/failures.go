package announce

import (
	"context"
	"errors"
	"sync"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
)

// failures logs why Events cannot be published: each cause once, until a request succeeds. It is safe for concurrent use.
type failures struct {
	mu sync.Mutex
	// logged are the causes; "" is that the server cannot be reached.
	logged logonce.Conditions[metav1.StatusReason]
}

// note records the result of an attempt to publish an Event.
func (f *failures) note(ctx context.Context, event *eventsv1.Event, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	logger := klog.FromContext(ctx)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return
	case err == nil:
		if ended := f.logged.EndedExcept(func(metav1.StatusReason) bool { return false }); len(ended) > 0 {
			logger.Info("Events are published again")
		}
		return
	}
	about := []any{"kind", event.Regarding.Kind, "namespace", event.Regarding.Namespace, "name", event.Regarding.Name, "reason", event.Reason}
	if !f.logged.Changed(apierrors.ReasonForError(err), "") {
		logger.V(4).Info("Failed to publish another event", append(about, "err", err)...)
		return
	}
	hint := "it will be retried for some minutes"
	switch {
	case apierrors.IsForbidden(err):
		hint = "allow create of events of events.k8s.io: bind the ClusterRole system:node-proxier to the proxy's user"
	case isFinal(err):
		hint = "it is not retried; it has no effect on Services"
	}
	logger.Error(err, "Failed to publish an event; later failures with the same cause are not logged", append(about, "hint", hint)...)
}
