// Package events publishes what the proxy has to say about objects, as Events of the API (events.k8s.io/v1)
// that kubectl describe shows.
package events

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// controller is who reports; dashboards look for it.
const controller = "kube-proxy"

// Event is what happened to an object.
type Event struct {
	// Kind, Namespace and Name tell the object: a Service, or a Node without namespace. UID is the object's own; of a
	// Node it is not asked for.
	Kind, Namespace, Name, UID string
	// Warning tells that somebody should look at it.
	Warning bool
	// Reason and Action are CamelCase words, Message is a sentence; it is cut where the API's limit is.
	Reason, Action, Message string
	// Once, unless it is empty, makes the Event's name follow from the object, the reason and this: as long as the API
	// server keeps the Event (an hour by default, kube-apiserver --event-ttl), nobody publishes it again.
	Once string
}

// Recorder publishes Events through the API server.
type Recorder struct {
	client      eventsv1client.EventsV1Interface
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	instance    string
	// plain are the Events to be published, once those to be published unless they have been.
	plain chan Event
	once  chan *eventsv1.Event
}

// backlog is how many Events of either kind may wait. The client's rate limit bounds how fast they go.
const backlog = 1000

// New makes a Recorder that publishes once Run runs.
func New(config *rest.Config) (*Recorder, error) {
	client, err := eventsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the client for events: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find out who reports events: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client})
	return &Recorder{
		client: client, broadcaster: broadcaster, recorder: broadcaster.NewRecorder(scheme.Scheme, controller),
		instance: controller + "-" + hostname, plain: make(chan Event, backlog), once: make(chan *eventsv1.Event, backlog),
	}, nil
}

// Run publishes until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	defer r.broadcaster.Shutdown()
	if err := r.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("publish events: %w", err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		each(ctx, r.plain, func(e Event) { r.recorder.Eventf(e.object(), nil, e.kind(), e.Reason, e.Action, "%s", e.note()) })
	})
	both.Go(func() { // apart, since it waits for the server
		each(ctx, r.once, func(event *eventsv1.Event) { r.publish(ctx, event) })
	})
	both.Wait()
	return nil
}

// each takes what comes until ctx ends.
func each[E any](ctx context.Context, from <-chan E, take func(E)) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-from:
			take(e)
		}
	}
}

// Event publishes one event, sooner or later. It does not block. What is told before Run waits for it: a broadcaster that
// nobody listens to would drop it.
func (r *Recorder) Event(e Event) {
	if !r.enqueue(e) {
		klog.Background().Info("Too many events to publish; this one is only here", "kind", e.Kind, "namespace", e.Namespace,
			"name", e.Name, "reason", e.Reason, "message", e.Message)
	}
}

// enqueue lets an event wait, if there is room.
func (r *Recorder) enqueue(e Event) bool {
	if e.Once == "" {
		select {
		case r.plain <- e:
			return true
		default:
			return false
		}
	}
	select {
	case r.once <- r.named(e):
		return true
	default:
		return false
	}
}

// named makes the Event whose name follows from what it is about.
func (r *Recorder) named(e Event) *eventsv1.Event {
	object := e.object()
	about := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", object.UID, e.Reason, e.Once))
	namespace := e.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", e.Name, about[:8])},
		EventTime:           metav1.NowMicro(),
		ReportingController: controller, ReportingInstance: r.instance,
		Regarding: *object, Type: e.kind(), Reason: e.Reason, Action: e.Action, Note: e.note(),
	}
}

// publish creates an Event unless it is there. A proxy may create events and not read them, so it is the server that
// tells. What may succeed later is tried again, at longer and longer intervals.
func (r *Recorder) publish(ctx context.Context, event *eventsv1.Event) {
	var last error
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 8, Cap: time.Minute}
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		_, last = r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
		switch {
		case last == nil, apierrors.IsAlreadyExists(last):
			return true, nil
		case apierrors.IsForbidden(last), apierrors.IsInvalid(last), apierrors.IsNotFound(last), apierrors.IsUnauthorized(last):
			return false, last // a namespace that is being deleted, or rights that are missing
		default:
			return false, nil
		}
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(last, "Cannot publish an event", "event", klog.KObj(event), "reason", event.Reason, "note", event.Note)
	}
}

// object is what an event is about.
func (e *Event) object() *corev1.ObjectReference {
	object := &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: types.UID(e.UID),
	}
	if e.Kind == "Node" {
		object.UID = types.UID(e.Name) // as kubelet does, and kubectl describe expects
	}
	return object
}

func (e *Event) kind() string {
	if e.Warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// noteLimit is the API's, in bytes.
const noteLimit = 1024

// note is the message as far as the API takes it.
func (e *Event) note() string {
	if len(e.Message) <= noteLimit {
		return e.Message
	}
	const cut = "..."
	return strings.ToValidUTF8(e.Message[:noteLimit-len(cut)], "") + cut
}

// Log is a Recorder for a proxy without an API server: events become lines of the log.
type Log struct{ Logger klog.Logger }

// Event logs one event.
func (l Log) Event(e Event) {
	l.Logger.Info("Event", "kind", e.Kind, "namespace", e.Namespace, "name", e.Name, "reason", e.Reason, "message", e.Message)
}
