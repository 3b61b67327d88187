package kubeproxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// API is an API server that lists and watches the objects that a test puts into it. It speaks JSON and streams no lists, as servers of
// older versions did; Events are accepted and forgotten. Its objects of a resource have different names, and keep their labels.
type API struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	version int
	objects map[string]map[string]runtime.Object // by resource and name
	history []apiEvent
}

type apiEvent struct {
	version  int
	resource string
	Type     watch.EventType `json:"type"`
	Object   runtime.Object  `json:"object"`
}

// NewAPI returns an API server without objects.
func NewAPI() *API {
	return &API{changed: make(chan struct{}), version: 1, objects: map[string]map[string]runtime.Object{}}
}

// Serve answers on a listener until the test ends.
func (a *API) Serve(t testing.TB, listener net.Listener) {
	server := &http.Server{Handler: a}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// Put creates or replaces an object.
func (a *API) Put(object runtime.Object) { a.change(object, watch.Added) }

// Remove deletes an object.
func (a *API) Remove(object runtime.Object) { a.change(object, watch.Deleted) }

func (a *API) change(object runtime.Object, kind watch.EventType) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resource := ""
	switch object.(type) {
	case *corev1.Service:
		resource = "services"
	case *discoveryv1.EndpointSlice:
		resource = "endpointslices"
	case *corev1.Node:
		resource = "nodes"
	case *networkingv1.ServiceCIDR:
		resource = "servicecidrs"
	}
	object = object.DeepCopyObject()
	a.version++
	of := object.(metav1.Object)
	of.SetResourceVersion(strconv.Itoa(a.version))
	if a.objects[resource] == nil {
		a.objects[resource] = map[string]runtime.Object{}
	}
	if _, known := a.objects[resource][of.GetName()]; known && kind == watch.Added {
		kind = watch.Modified
	}
	if a.objects[resource][of.GetName()] = object; kind == watch.Deleted {
		delete(a.objects[resource], of.GetName())
	}
	a.history = append(a.history, apiEvent{a.version, resource, kind, object})
	close(a.changed)
	a.changed = make(chan struct{})
}

// ServeHTTP answers GET /api/v1/services and the like.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, query := path.Base(r.URL.Path), r.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	selected := func(object runtime.Object) bool {
		return selector.Matches(labels.Set(object.(metav1.Object).GetLabels()))
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	switch {
	case r.Method != http.MethodGet:
		_ = encoder.Encode(metav1.Status{Status: metav1.StatusSuccess})
	case query.Get("sendInitialEvents") == "true":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = encoder.Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
	case query.Get("watch") == "true":
		at, _ := strconv.Atoi(query.Get("resourceVersion"))
		a.watch(resource, at, func(e apiEvent) error {
			if !selected(e.Object) {
				return nil
			}
			return encoder.Encode(e)
		}, func(more <-chan struct{}) bool {
			w.(http.Flusher).Flush()
			select {
			case <-more:
				return true
			case <-r.Context().Done():
				return false
			}
		})
	default:
		_ = encoder.Encode(a.list(resource, selected))
	}
}

// list is the list of the selected objects of a resource.
func (a *API) list(resource string, selected func(runtime.Object) bool) any {
	a.mu.Lock()
	defer a.mu.Unlock()
	version := cmp.Or(map[string]string{"endpointslices": "discovery.k8s.io/v1", "servicecidrs": "networking.k8s.io/v1"}[resource], "v1")
	kind := map[string]string{"services": "Service", "endpointslices": "EndpointSlice", "nodes": "Node", "servicecidrs": "ServiceCIDR"}[resource]
	items := []runtime.Object{}
	for _, object := range a.objects[resource] {
		if selected(object) {
			items = append(items, object)
		}
	}
	return map[string]any{"apiVersion": version, "kind": kind + "List", "items": items,
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}}
}

// watch sends the events of a resource that come after a version, until wait, which is called when all have been sent,
// returns false.
func (a *API) watch(resource string, after int, send func(apiEvent) error, wait func(more <-chan struct{}) bool) {
	for {
		a.mu.Lock()
		history, more := a.history, a.changed
		a.mu.Unlock()
		for _, e := range history {
			if e.version > after && e.resource == resource && send(e) != nil {
				return
			}
			after = max(after, e.version)
		}
		if !wait(more) {
			return
		}
	}
}
