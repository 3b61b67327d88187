package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"io"
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
	// began is when the current list began, size how many bytes of it have arrived.
	began time.Time
	size  *int64
}

// ListWithContext requests a page of a list and applies its objects. It returns the page without them.
func (l *listWatch) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := l.listAnew(); err != nil {
		return nil, err
	}
	if options.Continue == "" {
		l.listBegins()
	}
	page, err := l.takePage(&options)
	l.note(listVerb, err)
	if err != nil {
		if l.store.optional && isMissing(err) {
			l.store.doWithout()
		}
		return nil, err
	}
	return &metainternal.List{ListMeta: page}, nil
}

// listBegins is called before the first request of a list.
func (l *listWatch) listBegins() {
	l.began, l.size = time.Now(), new(int64)
	l.store.listBegins()
}

// takePage requests a page of a list and applies its objects.
func (l *listWatch) takePage(options *metav1.ListOptions) (metav1.ListMeta, error) {
	if time.Since(l.began) > maxPaging {
		return metav1.ListMeta{}, &tooLargeError{fmt.Sprintf("a list in pages does not end within %s", maxPaging)}
	}
	m := newMeter(l.ctx, l.size)
	defer m.end()
	body, err := l.request(options).Stream(m.ctx)
	if err != nil {
		return metav1.ListMeta{}, m.why(err)
	}
	defer body.Close()
	page, err := readPage(body, l.store.resource, func(object runtime.Object) error {
		if err := l.store.take(object); err != nil {
			return err
		}
		l.store.spare.Put(object) // the Builder keeps nothing of it
		return nil
	}, m.objectEnds)
	return page, m.why(err)
}

// WatchWithContext watches, starting with all objects if the options request it; it returns when they have been applied.
func (l *listWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streamed := options.SendInitialEvents != nil && *options.SendInitialEvents
	brokeOff := !streamed && time.Now().Before(l.lasts)
	var list *int64
	if streamed {
		if err := l.listAnew(); err != nil {
			return nil, err
		}
		l.listBegins()
		list = l.size
	}
	lasts := time.Duration(ptr.Deref(options.TimeoutSeconds, 0)) * time.Second
	l.lasts = time.Now().Add(lasts)
	options.Watch = true
	ctx, stop := context.WithTimeout(ctx, lasts+watchGrace)
	m := newMeter(ctx, list)
	events, err := l.request(&options).Watch(m.ctx)
	if err != nil {
		m.end()
		stop()
		err = m.why(err)
		if !streamed || !isRefusal(err) { // if the server cannot stream lists, a list follows
			l.note(watchVerb, err)
		}
		return nil, err
	}
	events = &meteredWatch{events, func() {
		if err := m.why(nil); err != nil {
			l.note(watchVerb, err)
		}
		m.end()
		stop()
	}}
	if streamed {
		rest, last := l.takeList(ctx, events)
		switch {
		case isListEnd(last):
			m.listEnds()
			l.note(watchVerb, m.why(nil))
		case last.Type != "" && last.Type != watch.Error:
			err := cmp.Or(ctx.Err(), m.why(fmt.Errorf("streaming a list of %s: %w", l.store.Name, io.ErrUnexpectedEOF)))
			l.note(watchVerb, err)
			rest.Stop()
			return nil, apierrors.NewTooManyRequestsError(err.Error()) // so that the Reflector pauses, and then requests a stream again
		}
		return rest, nil
	}
	l.note(watchVerb, nil)
	if brokeOff && l.rolledBack(options.ResourceVersion) {
		events.Stop()
		l.ahead = true
		return nil, errAhead()
	}
	return events, nil
}

// meteredWatch is a watch that ends its request.
type meteredWatch struct {
	watch.Interface
	end func()
}

// Stop implements watch.Interface. A Reflector calls it at the end of each watch.
func (w *meteredWatch) Stop() {
	w.Interface.Stop()
	w.end()
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
	m := newMeter(l.ctx, nil)
	defer m.end()
	err := l.client.Get().Resource(l.store.Name).NamespaceIfScoped(metav1.NamespaceDefault, l.store.namespaced).
		VersionedParams(options, metav1.ParameterCodec).MaxRetries(0).Do(m.ctx).Error()
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

// takeList applies the events of a streamed list and returns the rest of the watch, which starts with the last event: the bookmark at the
// end of the list, or an error. It is another one if the stream broke off, and has no type if there was none.
//
// Without this, the Reflector would collect the objects in a store of its own.
func (l *listWatch) takeList(ctx context.Context, events watch.Interface) (rest watch.Interface, last watch.Event) {
	for last = range events.ResultChan() {
		if last.Type == watch.Error || isListEnd(last) {
			break
		}
		if err := l.store.takeListed(last); err != nil {
			klog.FromContext(ctx).Error(err, "Ignoring an event of a list", "resource", l.store.Name, "type", last.Type)
			continue
		}
		l.store.spare.Put(last.Object) // the Builder keeps nothing of it
	}
	first := make(chan watch.Event, 1)
	if last.Type != "" {
		first <- last
	}
	return &restOfWatch{Interface: events, first: first}, last
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
	return l.client.Get().Resource(l.store.Name).VersionedParams(options, metav1.ParameterCodec)
}

// List implements cache.ListerWatcher; a Reflector calls ListWithContext.
func (l *listWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(l.ctx, options)
}

// Watch implements cache.ListerWatcher; a Reflector calls WatchWithContext.
func (l *listWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(l.ctx, options)
}
