package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// listed is the name of an object of a list; the object itself has been applied.
type listed cache.ObjectName

// GetObjectKind implements runtime.Object, which list items must implement.
func (listed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (l listed) DeepCopyObject() runtime.Object { return l }

// listWatch sends a Reflector's requests to the API server.
type listWatch struct {
	ctx      context.Context // the Source's; a Reflector does not pass one to List
	client   rest.Interface
	store    *store
	failures *failures
}

// ListWithContext requests a page of a list, applies its objects, and returns their names.
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
	names := &metainternal.List{ListMeta: metav1.ListMeta{
		ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue(), RemainingItemCount: of.GetRemainingItemCount()}}
	take := l.store.Transformer()
	err = meta.EachListItem(page, func(object runtime.Object) error {
		name, err := take(object)
		if err == nil {
			names.Items = append(names.Items, name.(listed))
		}
		return err
	})
	return names, err
}

// WatchWithContext watches, starting with all objects if the options request it.
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
	return events, err
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
