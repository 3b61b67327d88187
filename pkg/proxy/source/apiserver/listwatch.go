package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// listWatch sends a Reflector's requests to the API server.
type listWatch struct {
	ctx      context.Context // the Source's; a Reflector does not pass one to List
	client   rest.Interface
	store    *store
	failures *failures
}

// ListWithContext requests a page of a list and applies its objects. It returns the page without them.
func (l *listWatch) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		l.store.listBegins()
	}
	page, err := l.request(&options).Do(l.ctx).Get()
	l.failures.note(l.store.resource, listVerb, err)
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
	if streamed {
		l.store.listBegins()
	}
	options.Watch = true
	events, err := l.request(&options).Watch(ctx)
	if !streamed || !isRefusal(err) { // if the server cannot stream lists, a list follows
		l.failures.note(l.store.resource, watchVerb, err)
	}
	if err != nil || !streamed {
		return events, err
	}
	return l.takeList(ctx, events), nil
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
