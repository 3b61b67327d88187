// Package events publishes what the proxy has to say about objects, as Events of the API (events.k8s.io/v1)
// that kubectl describe shows.
package events

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// controller is who reports; dashboards look for it.
const controller = "kube-proxy"

// Event is what happened to an object.
type Event struct {
	// Kind, Namespace and Name tell the object: a Service, or a Node without namespace.
	Kind, Namespace, Name string
	// Warning tells that somebody should look at it.
	Warning bool
	// Reason and Action are CamelCase words, Message is a sentence.
	Reason, Action, Message string
}

// Recorder publishes Events through the API server.
type Recorder struct {
	broadcaster events.EventBroadcaster
	recorder    events.EventRecorder
}

// New makes a Recorder that publishes once Run runs.
func New(config *rest.Config) (*Recorder, error) {
	client, err := eventsv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the client for events: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client})
	return &Recorder{broadcaster: broadcaster, recorder: broadcaster.NewRecorder(scheme.Scheme, controller)}, nil
}

// Run publishes until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	defer r.broadcaster.Shutdown()
	if err := r.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("publish events: %w", err)
	}
	<-ctx.Done()
	return nil
}

// Event publishes one event, sooner or later. It does not block.
func (r *Recorder) Event(e Event) {
	object := &corev1.ObjectReference{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
	if e.Kind == "Node" {
		object.UID = types.UID(e.Name) // as kubelet does, and kubectl describe expects
	}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(object, nil, kind, e.Reason, e.Action, "%s", e.Message)
}

// Log is a Recorder for a proxy without an API server: events become lines of the log.
type Log struct{ Logger klog.Logger }

// Event logs one event.
func (l Log) Event(e Event) {
	l.Logger.Info("Event", "kind", e.Kind, "namespace", e.Namespace, "name", e.Name, "reason", e.Reason, "message", e.Message)
}
