// Package announce tells the users of a cluster, in the log and through the API server, what they may not expect of a Service, such as that it
// is not served on an address or port, or not yet, and why; and removes the startup taint.
//
//	reporter.go  the Reporter: what is new in a sync; contested.go, externalips.go, refused.go and changed.go have its topics
//	events.go    the Recorder: from an event of the proxy to an object of the API (events.k8s.io/v1), which kubectl describe shows
//	queue.go     Events that are not published yet; limit.go keeps them few
//	failures.go  what is logged if they cannot be published
//	taint.go     the TaintRemover
package announce

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
)

// controller is the reporting controller, which dashboards select by.
const controller = "kube-proxy"

// Recorder publishes Events through the API server.
type Recorder struct {
	clients  apiclient.Clients
	requests flowcontrol.RateLimiter // of all Events but the last words
	instance string
	limiter  *limiter
	pending  *queue
	failures failures
}

// backlog is the maximum number of pending Events. The rate limit of the client's configuration bounds the rate of publishing.
const backlog = 1000

// NewRecorder returns a Recorder. Events are published while Run runs.
func NewRecorder(config *rest.Config) (*Recorder, error) {
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1 // a wait for the limit must not count as a failed request
	clients, err := apiclient.New(unlimited, apiclient.Events)
	if err != nil {
		return nil, fmt.Errorf("creating the client for events: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("determining the host name for events: %w", err)
	}
	return &Recorder{clients: clients, requests: requestLimit(config), instance: controller + "-" + hostname,
		limiter: newLimiter(), pending: newQueue(backlog)}, nil
}

// requestLimit returns the limit of requests of a client with this configuration.
func requestLimit(config *rest.Config) flowcontrol.RateLimiter {
	if config.QPS < 0 {
		return flowcontrol.NewFakeAlwaysRateLimiter()
	}
	return flowcontrol.NewTokenBucketRateLimiter(cmp.Or(config.QPS, rest.DefaultQPS), cmp.Or(config.Burst, rest.DefaultBurst))
}

const (
	// lastWords is how long events are still published after the end of the process has begun: they may say why.
	lastWords = 2 * time.Second
	// patience is how long a request may take.
	patience = 30 * time.Second
)

// Run publishes events until ctx ends, and then tries once to publish those that are pending, for at most 2 s: first those about
// the Node, and none that another process will publish.
func (r *Recorder) Run(ctx context.Context) error {
	r.pending.run(ctx, func(o occurrence) bool { return r.publish(ctx, o) })
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	for _, o := range r.pending.rest() {
		if !o.once {
			r.try(last, o)
		}
	}
	return nil
}

// Event queues an event. It does not block. Events before Run are kept until it runs.
func (r *Recorder) Event(e proxy.Event) {
	logger := klog.Background().WithValues("kind", e.Kind, "namespace", e.Namespace, "name", e.Name, "reason", e.Reason)
	switch {
	case !r.limiter.allows(&e):
		logger.V(4).Info("Too many events about this object; not publishing this one", "message", note(&e))
	case !r.pending.put(occurrence{namespace: e.Namespace, event: r.convert(e), once: e.Once != ""}):
		logger.Info("Too many pending events; not publishing this one", "message", note(&e))
	}
}

// convert returns the API's object of an event.
func (r *Recorder) convert(e proxy.Event) *eventsv1.Event {
	now := metav1.NowMicro()
	if e.Kind == "Node" {
		e.UID = e.Name // like kubelet; kubectl describe expects it
	}
	unique := cmp.Or(e.Once, fmt.Sprintf("%s\n%s\n%d", r.instance, note(&e), now.UnixNano()))
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: cmp.Or(e.Namespace, metav1.NamespaceDefault), Name: name(e.Name, e.UID, e.Reason, unique)},
		EventTime:           now,
		ReportingController: controller, ReportingInstance: r.instance,
		Regarding: corev1.ObjectReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: types.UID(e.UID)},
		Type:      map[bool]string{false: corev1.EventTypeNormal, true: corev1.EventTypeWarning}[e.Warning], Reason: e.Reason, Action: e.Action, Note: note(&e),
	}
}

// name returns the name of an Event about an object: the object's name, and a digest of what distinguishes the Event.
func name(object string, parts ...string) string {
	digest := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	suffix := fmt.Sprintf(".%x", digest[:8])
	if room := validation.DNS1123SubdomainMaxLength - len(suffix); len(object) > room {
		object = strings.TrimRight(object[:room], ".-")
	}
	return object + suffix
}

// publish publishes an Event, and retries after temporary failures with backoff, for two or three minutes. It reports whether
// that ended before ctx.
func (r *Recorder) publish(ctx context.Context, o occurrence) (ended bool) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 8} // a Cap would end it
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		if err := r.requests.Wait(ctx); err != nil {
			return false, err
		}
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ended = r.try(limited, o)
		return ended, nil
	})
	return ended || ctx.Err() == nil
}

// try publishes an Event with one attempt, and reports whether no other one is needed. A proxy may create Events but not read them, so it
// relies on the server's answer.
func (r *Recorder) try(ctx context.Context, o occurrence) (final bool) {
	err := r.clients.Create(ctx, apiclient.Events, o.event.Namespace, o.event, nil)
	if apierrors.IsAlreadyExists(err) { // by another process, or by an attempt whose answer did not arrive
		err = nil
	}
	r.failures.note(ctx, o.event, err)
	return isFinal(err)
}

// isFinal reports whether a request that had this result need not be repeated: it succeeded, or the client is at fault.
func isFinal(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err == nil
	}
	code := int(answer.Status().Code)
	passing := []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests}
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && !slices.Contains(passing, code)
}

// noteLimit is the API's limit for notes, in bytes.
const noteLimit = 1024

// note returns the message, cut at the API's limit.
func note(e *proxy.Event) string {
	if len(e.Message) <= noteLimit {
		return e.Message
	}
	const cut = "..."
	return strings.ToValidUTF8(e.Message[:noteLimit-len(cut)], "") + cut
}

// Log is a recorder for a proxy without an API server: it logs events.
type Log struct{ Logger klog.Logger }

// Event logs one event.
func (l Log) Event(e proxy.Event) {
	l.Logger.Info("Event", "kind", e.Kind, "namespace", e.Namespace, "name", e.Name, "reason", e.Reason, "message", e.Message)
}
