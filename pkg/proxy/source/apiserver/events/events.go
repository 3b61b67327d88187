// Package events publishes Events of the API (events.k8s.io/v1), which kubectl describe shows.
package events

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
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

// controller is the reporting controller, which dashboards select by.
const controller = "kube-proxy"

// Event is what happened to an object.
type Event struct {
	// Kind, Namespace and Name identify the object: a Service, or a Node without namespace. UID is the object's; it is
	// ignored for a Node.
	Kind, Namespace, Name, UID string
	// Warning marks events that need attention.
	Warning bool
	// Reason and Action are CamelCase words, Message is a sentence; it is cut at the API's limit.
	Reason, Action, Message string
	// Once, unless it is empty, deduplicates: the Event's name is derived from the object, the reason and Once, so that
	// no proxy publishes it again while the API server keeps it (an hour by default, kube-apiserver --event-ttl).
	Once string
}

// Recorder publishes Events through the API server.
type Recorder struct {
	client      eventsv1client.EventsV1Interface
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
	sink        *sink
	instance    string
	limiter     *limiter
	// plain holds pending Events, once pending Events to be published unless they exist.
	plain *queue[Event]
	once  *queue[*eventsv1.Event]
}

// backlog is the maximum number of pending Events of either kind. The client's rate limit bounds the rate of
// publishing.
const backlog = 1000

// New returns a Recorder. Events are published while Run runs.
func New(config *rest.Config) (*Recorder, error) {
	client, err := eventsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client for events: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("determining the host name for events: %w", err)
	}
	sink := &sink{EventSink: &events.EventSinkImpl{Interface: client}}
	broadcaster := events.NewBroadcaster(sink)
	return &Recorder{
		client: client, broadcaster: broadcaster, recorder: broadcaster.NewRecorder(scheme.Scheme, controller), sink: sink,
		instance: controller + "-" + hostname, limiter: newLimiter(), plain: newQueue[Event](backlog), once: newQueue[*eventsv1.Event](backlog),
	}, nil
}

// lastWords is how long events are still published after the end of the process has begun: they may say why.
const lastWords = 2 * time.Second

// Run publishes events until ctx ends, and then those that are pending, for at most 2 s.
func (r *Recorder) Run(ctx context.Context) error {
	defer r.broadcaster.Shutdown()
	r.sink.failures.start(klog.FromContext(ctx))
	publishing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// The broadcaster logs every attempt, and Events as Go structs. The sink logs what is worth knowing.
	if err := r.broadcaster.StartRecordingToSinkWithContext(klog.NewContext(publishing, logr.Discard())); err != nil {
		return fmt.Errorf("publishing events: %w", err)
	}
	var both sync.WaitGroup
	both.Go(func() { r.record(ctx) })
	both.Go(func() { // separate, because it waits for the server
		r.once.each(ctx, func(event *eventsv1.Event) { r.publish(ctx, event) })
	})
	both.Wait()
	return nil
}

// record passes plain events to the broadcaster, which publishes them in the background.
func (r *Recorder) record(ctx context.Context) {
	var last time.Time
	recorded := int64(0)
	take := func(e Event) {
		last = time.Now()
		recorded++
		r.recorder.Eventf(e.object(), nil, e.kind(), e.Reason, e.Action, "%s", e.note())
	}
	r.plain.each(ctx, take)
	r.plain.rest(take)
	// An Event that happened again is not created, so that the number alone would make every end wait.
	for r.sink.created.Load() < recorded && time.Since(last) < lastWords {
		time.Sleep(lastWords / 100)
	}
}

// Event queues an event. It does not block. Events before Run are kept until it runs, because a broadcaster that has
// not been started would drop them.
func (r *Recorder) Event(e Event) {
	logger := klog.Background().WithValues("kind", e.Kind, "namespace", e.Namespace, "name", e.Name, "reason", e.Reason)
	switch {
	case !r.limiter.allows(&e):
		logger.V(4).Info("Too many events about this object; not publishing this one", "message", e.note())
	case e.Once == "" && !r.plain.put(e.Namespace, e), e.Once != "" && !r.once.put(e.Namespace, r.named(e)):
		logger.Info("Too many pending events; not publishing this one", "message", e.note())
	}
}

// named returns the Event whose name is derived from its content.
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

// publish creates an Event unless it exists. A proxy may create events but not read them, so it relies on the
// server's answer. Temporary failures are retried with backoff, for two or three minutes.
func (r *Recorder) publish(ctx context.Context, event *eventsv1.Event) {
	var last error
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 8} // a Cap would end it
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		_, last = r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
		r.sink.failures.note(ctx, create, event, last)
		switch {
		case last == nil, apierrors.IsAlreadyExists(last):
			return true, nil
		case apierrors.IsForbidden(last), apierrors.IsInvalid(last), apierrors.IsNotFound(last), apierrors.IsUnauthorized(last):
			return false, last // the namespace is being deleted, or permissions are missing
		default:
			return false, nil
		}
	})
}

// object returns a reference to the event's object.
func (e *Event) object() *corev1.ObjectReference {
	object := &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: types.UID(e.UID),
	}
	if e.Kind == "Node" {
		object.UID = types.UID(e.Name) // like kubelet; kubectl describe expects it
	}
	return object
}

func (e *Event) kind() string {
	if e.Warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// noteLimit is the API's limit for notes, in bytes.
const noteLimit = 1024

// note returns the message, cut at the API's limit.
func (e *Event) note() string {
	if len(e.Message) <= noteLimit {
		return e.Message
	}
	const cut = "..."
	return strings.ToValidUTF8(e.Message[:noteLimit-len(cut)], "") + cut
}

// Log is a recorder for a proxy without an API server: it logs events.
type Log struct{ Logger klog.Logger }

// Event logs one event.
func (l Log) Event(e Event) {
	l.Logger.Info("Event", "kind", e.Kind, "namespace", e.Namespace, "name", e.Name, "reason", e.Reason, "message", e.Message)
}
