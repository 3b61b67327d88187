package apiserver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// listWatch sends a Reflector's requests to the API server.
type listWatch struct {
	ctx      context.Context // the Source's; a Reflector does not pass one to List
	client   rest.Interface
	store    *store
	failures *failures
	// lasts is until when the server was asked to keep up the last watch.
	lasts time.Time
	// ahead reports that the Reflector's resource version is ahead of the server.
	ahead bool
}

// ListWithContext requests a page of a list and applies its objects. It returns the page without them.
func (l *listWatch) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := l.listAnew(); err != nil {
		return nil, err
	}
	if options.Continue == "" {
		l.store.listBegins()
	}
	page, err := l.request(&options).Do(l.ctx).Get()
	l.note(listVerb, err)
	if err != nil {
		if l.store.optional && isMissing(err) {
			l.store.doWithout()
		}
		return nil, err
	}
	of, err := meta.ListAccessor(page)
	if err != nil {
		return nil, fmt.Errorf("the API server returned %T instead of a list of %s: %w", page, l.store.name, err)
	}
	err = meta.EachListItem(page, func(object runtime.Object) error { return l.store.take(object) })
	return &metainternal.List{ListMeta: metav1.ListMeta{
		ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue(), RemainingItemCount: of.GetRemainingItemCount()}}, err
}

// WatchWithContext watches, starting with all objects if the options request it; it returns when they have been applied.
func (l *listWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streamed := options.SendInitialEvents != nil && *options.SendInitialEvents
	brokeOff := !streamed && time.Now().Before(l.lasts)
	if streamed {
		if err := l.listAnew(); err != nil {
			return nil, err
		}
		l.store.listBegins()
	}
	l.lasts = time.Now().Add(time.Duration(ptr.Deref(options.TimeoutSeconds, 0)) * time.Second)
	options.Watch = true
	events, err := l.request(&options).Watch(ctx)
	if !streamed || !isRefusal(err) { // if the server cannot stream lists, a list follows
		l.note(watchVerb, err)
	}
	switch {
	case err != nil:
		return nil, err
	case streamed:
		return l.takeList(ctx, events), nil
	case brokeOff && l.rolledBack(options.ResourceVersion):
		events.Stop()
		l.ahead = true
		return nil, errAhead()
	}
	return events, nil
}

// rolledBack reports whether the server has not reached a resource version that it sent, so its etcd was restored or replaced. A
// watch would not show that: it waits, however long, until the server reaches the version. A list says so after 3 s. It
// requests one object at most, and is sent only after the beginning of a watch that follows one that broke off or could not begin.
func (l *listWatch) rolledBack(version string) bool {
	fields := l.store.fields
	if l.store.namespaced {
		fields = "metadata.name=kubernetes" // older servers ignore the limit
	}
	options := &metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Limit: 1, FieldSelector: fields}
	err := l.client.Get().Resource(l.store.name).NamespaceIfScoped(metav1.NamespaceDefault, l.store.namespaced).
		VersionedParams(options, metav1.ParameterCodec).MaxRetries(0).Do(l.ctx).Error()
	if !isAhead(err) { // or failed, as the watch will
		return false
	}
	l.note(listVerb, err)
	return true
}

// isAhead reports whether the server has not reached the resource version of a request.
func isAhead(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// note records the outcome of a request. It is no failure if the server is not as far as the request: then a list at any version
// follows.
func (l *listWatch) note(verb string, err error) {
	if isAhead(err) {
		l.store.logger.Info("The API server has an earlier state than before, perhaps from a backup; listing again", "reason", err.Error())
		return
	}
	l.failures.note(l.store.resource, verb, err)
}

// listAnew returns the error for the next list after rolledBack, which makes the Reflector request it at any resource version.
func (l *listWatch) listAnew() error {
	if !l.ahead {
		return nil
	}
	l.ahead = false
	return errAhead()
}

func errAhead() error {
	return apierrors.NewResourceExpired("the API server has not reached the resource version that it sent before")
}

// takeList applies the events of a streamed list and returns the rest of the watch, which starts with the bookmark at the end
// of the list. If the stream breaks off, the rest starts with the last event, so that the Reflector does not take the server
// for one that cannot stream and requests a list in a single response.
//
// Without this, the Reflector would collect the objects in a store of its own.
func (l *listWatch) takeList(ctx context.Context, events watch.Interface) watch.Interface {
	var last watch.Event
	for last = range events.ResultChan() {
		if last.Type == watch.Error || isListEnd(last) {
			break
		}
		if err := l.store.takeListed(last); err != nil {
			klog.FromContext(ctx).Error(err, "Ignoring an event of a list", "resource", l.store.name, "type", last.Type)
			continue
		}
		l.store.spare.Put(last.Object) // the Builder keeps nothing of it
	}
	rest := &restOfWatch{Interface: events, first: make(chan watch.Event, 1)}
	if last.Type != "" {
		rest.first <- last
	}
	return rest
}

// isListEnd reports whether an event ends a streamed list.
func isListEnd(event watch.Event) bool {
	object, err := meta.Accessor(event.Object)
	return err == nil && event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// restOfWatch is a watch with an event put back.
type restOfWatch struct {
	watch.Interface
	first chan watch.Event
}

// ResultChan implements watch.Interface. A Reflector calls it before each event.
func (r *restOfWatch) ResultChan() <-chan watch.Event {
	if len(r.first) > 0 {
		return r.first
	}
	return r.Interface.ResultChan()
}

func (l *listWatch) request(options *metav1.ListOptions) *rest.Request {
	options.FieldSelector, options.LabelSelector = l.store.fields, l.store.labels
	return l.client.Get().Resource(l.store.name).VersionedParams(options, metav1.ParameterCodec)
}

// List implements cache.ListerWatcher; a Reflector calls ListWithContext.
func (l *listWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(l.ctx, options)
}

// Watch implements cache.ListerWatcher; a Reflector calls WatchWithContext.
func (l *listWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(l.ctx, options)
}
