package apiserver

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// fakeAPI is an API server that speaks HTTP: lists in pages, watches, streaming lists, in protobuf and JSON.
// Like the real one it refuses expired resource versions and unsupported options.
type fakeAPI struct {
	*httptest.Server
	codecs serializer.CodecFactory

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	version int
	objects map[string]map[cache.ObjectName]runtime.Object
	history []change
	// forgotten is the last expired version.
	forgotten int
	// epoch is incremented to end all watches.
	epoch int
	// requests are those served, as "list services", "stream services" or "check services".
	requests []string

	// These are set before the start, or by set.
	mediaType string // the only one that the server supports, if not empty
	noStreams bool
	noCIDRs   bool
	release   string                               // of /version, which is forbidden if it is empty
	hangs     bool                                 // it does not answer /version
	drops     bool                                 // it leaves managedFields out if asked to
	pageLimit int                                  // maximum length of a page; 0 is no limit
	refuse    func(r *http.Request) *metav1.Status // returns an error to answer with, or nil
	foreign   string                               // answers each request, if not empty, as another kind of server would
	lastQuery map[string]map[string]string         // selectors and media types, by resource
	breakOff  map[string]int                       // how many of the next streams of a resource end after the first object
	late      []change                             // events in a streamed list, after its objects
	managed   int                                  // objects that were sent with managedFields
}

// change is an event of a watch.
type change struct {
	version  int
	resource string
	kind     watch.EventType
	object   runtime.Object
}

func newFakeAPI(t *testing.T, configure ...func(*fakeAPI)) *fakeAPI {
	f := newHandler()
	for _, c := range configure {
		c(f)
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// newScheme returns a scheme of what a proxy reads.
func newScheme() *runtime.Scheme { return apiclient.Scheme(read(resources(""))...) }

// newHandler returns a server that does not listen.
func newHandler() *fakeAPI {
	return &fakeAPI{
		codecs:    serializer.NewCodecFactory(newScheme()),
		changed:   make(chan struct{}),
		version:   10,
		objects:   map[string]map[cache.ObjectName]runtime.Object{},
		lastQuery: map[string]map[string]string{},
	}
}

func (f *fakeAPI) config() *rest.Config { return &rest.Config{Host: f.URL} }

// set changes the server's behaviour.
func (f *fakeAPI) set(change func(*fakeAPI)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
	f.wake()
}

func (f *fakeAPI) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func resourceOf(object runtime.Object) string {
	switch object.(type) {
	case *corev1.Service:
		return "services"
	case *corev1.Node:
		return "nodes"
	case *discoveryv1.EndpointSlice:
		return "endpointslices"
	case *networkingv1.ServiceCIDR:
		return "servicecidrs"
	}
	panic(fmt.Sprintf("%T", object))
}

// put creates or changes objects.
func (f *fakeAPI) put(objects ...runtime.Object) {
	f.set(func(*fakeAPI) {
		for _, object := range objects {
			object = object.DeepCopyObject()
			resource, name := resourceOf(object), mustName(object)
			kind := watch.Added
			if f.objects[resource] == nil {
				f.objects[resource] = map[cache.ObjectName]runtime.Object{}
			}
			if _, known := f.objects[resource][name]; known {
				kind = watch.Modified
			}
			f.objects[resource][name] = object
			f.happens(resource, kind, object)
		}
	})
}

// remove deletes objects with an event.
func (f *fakeAPI) remove(objects ...runtime.Object) {
	f.set(func(*fakeAPI) {
		for _, object := range objects {
			delete(f.objects[resourceOf(object)], mustName(object))
			f.happens(resourceOf(object), watch.Deleted, object.DeepCopyObject())
		}
	})
}

func (f *fakeAPI) happens(resource string, kind watch.EventType, object runtime.Object) {
	f.version++
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	accessor.SetResourceVersion(strconv.Itoa(f.version))
	f.history = append(f.history, change{f.version, resource, kind, object})
}

// lose deletes objects without an event, as a server with another etcd does.
func (f *fakeAPI) lose(objects ...runtime.Object) {
	f.set(func(*fakeAPI) {
		for _, object := range objects {
			delete(f.objects[resourceOf(object)], mustName(object))
		}
	})
}

// restart ends all watches. They cannot resume and have to list again.
func (f *fakeAPI) restart() {
	f.set(func(*fakeAPI) {
		f.version++
		f.forgotten = f.version - 1
		f.history = nil
		f.epoch++
	})
}

// rollBack makes the version earlier than all that were sent, as a server does whose etcd was restored. What changed since is
// left to the caller.
func (f *fakeAPI) rollBack() {
	f.set(func(*fakeAPI) {
		f.version = 5
		f.history = nil
		f.epoch++
	})
}

// hangUp ends all watches, which may resume.
func (f *fakeAPI) hangUp() { f.set(func(*fakeAPI) { f.epoch++ }) }

// count returns the number of requests of a kind.
func (f *fakeAPI) count(request string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if r == request {
			n++
		}
	}
	return n
}

func mustName(object any) cache.ObjectName {
	name, err := cache.ObjectToName(object)
	if err != nil {
		panic(err)
	}
	return name
}

// ServeHTTP answers GET /api/v1/services and the like.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/version" {
		f.serveVersion(w, r)
		return
	}
	resource := path.Base(r.URL.Path)
	query := r.URL.Query()
	streaming := query.Get("sendInitialEvents") == "true"
	watching := query.Get("watch") == "true"
	verb := "list"
	switch {
	case streaming:
		verb = "stream"
	case watching:
		verb = "watch"
	case query.Get("resourceVersionMatch") != "":
		verb = "check" // whether the server has reached a version
	}
	f.mu.Lock()
	f.requests = append(f.requests, verb+" "+resource)
	f.lastQuery[resource] = map[string]string{"fields": query.Get("fieldSelector"), "labels": query.Get("labelSelector"), "accept": r.Header.Get("Accept")}
	refusal, foreign, epoch := f.refusal(r, resource, query.Get("resourceVersion"), watching, streaming), f.foreign, f.epoch
	f.mu.Unlock()
	if foreign != "" {
		w.Header().Set("Content-Type", map[bool]string{true: "text/html", false: runtime.ContentTypeJSON}[foreign[0] == '<'])
		fmt.Fprint(w, foreign)
		return
	}
	media := f.media(r)
	if refusal != nil {
		w.Header().Set("Content-Type", media.MediaType)
		w.WriteHeader(int(refusal.Code))
		f.write(w, media.Serializer, refusal, schema.GroupVersion{Version: "v1"})
		return
	}
	if watching {
		f.serveWatch(w, r, media, resource, epoch)
		return
	}
	f.serveList(w, r, media, resource, epoch)
}

// serveVersion answers GET /version.
func (f *fakeAPI) serveVersion(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, "version")
	f.mu.Unlock()
	if f.hangs {
		<-r.Context().Done()
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if f.release == "" {
		w.WriteHeader(http.StatusForbidden)
	}
	fmt.Fprintf(w, `{"major": "1", "minor": "?", "gitVersion": %q}`, f.release)
}

// lockIn locks for a request of that epoch. If the epoch is over, it aborts the connection: the request has been counted,
// and must not be answered after the restart.
func (f *fakeAPI) lockIn(epoch int) {
	f.mu.Lock()
	if f.epoch != epoch {
		f.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
}

// media returns the serializer for the response.
func (f *fakeAPI) media(r *http.Request) runtime.SerializerInfo {
	wanted, _, _ := strings.Cut(strings.Split(r.Header.Get("Accept"), ",")[0], ";")
	if f.mediaType != "" {
		wanted = f.mediaType
	}
	info, ok := runtime.SerializerInfoForMediaType(f.codecs.SupportedMediaTypes(), wanted)
	if !ok {
		panic("no serializer for " + wanted)
	}
	return info
}

func (f *fakeAPI) refusal(r *http.Request, resource, version string, watching, streaming bool) *metav1.Status {
	status := func(err *apierrors.StatusError) *metav1.Status { return &err.ErrStatus }
	if f.refuse != nil {
		if s := f.refuse(r); s != nil {
			return s
		}
	}
	at, _ := strconv.Atoi(version)
	switch {
	case resource == "servicecidrs" && f.noCIDRs:
		return status(apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true))
	case streaming && f.noStreams:
		return status(apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	case at > f.version && (!watching || streaming):
		tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
		tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return status(tooLarge)
	case at != 0 && at <= f.forgotten:
		return status(apierrors.NewResourceExpired("too old resource version"))
	}
	return nil
}

func (f *fakeAPI) write(w http.ResponseWriter, s runtime.Serializer, object runtime.Object, version schema.GroupVersion) {
	if err := f.codecs.EncoderForVersion(s, version).Encode(object, w); err != nil {
		panic(err)
	}
}

// serveList writes a page, sorted by name; the continue token is the last name of the page before.
func (f *fakeAPI) serveList(w http.ResponseWriter, r *http.Request, media runtime.SerializerInfo, resource string, epoch int) {
	f.lockIn(epoch)
	defer f.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(f.objects[resource]), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	if f.pageLimit > 0 && limit > 0 {
		limit = min(limit, f.pageLimit)
	}
	var page []runtime.Object
	of := metav1.ListMeta{ResourceVersion: strconv.Itoa(f.version)}
	for _, name := range names {
		if name.String() <= query.Get("continue") {
			continue
		}
		if limit > 0 && len(page) == limit {
			of.Continue = mustName(page[limit-1]).String()
			break
		}
		page = append(page, f.sent(r, f.objects[resource][name]))
	}
	list, version := listOf(resource)
	if err := meta.SetList(list, page); err != nil {
		panic(err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		panic(err)
	}
	accessor.SetResourceVersion(of.ResourceVersion)
	accessor.SetContinue(of.Continue)
	w.Header().Set("Content-Type", media.MediaType)
	f.write(w, media.Serializer, list, version)
}

// sent returns an object as an answer contains it.
func (f *fakeAPI) sent(r *http.Request, object runtime.Object) runtime.Object {
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	_, parameters, err := mime.ParseMediaType(first)
	switch {
	case err != nil:
		panic(err)
	case len(accessor.GetManagedFields()) == 0:
	case f.drops && parameters["drop"] == "metadata.managedFields":
		object = object.DeepCopyObject()
		object.(metav1.Object).SetManagedFields(nil)
	default:
		f.managed++
	}
	return object
}

func listOf(resource string) (runtime.Object, schema.GroupVersion) {
	switch resource {
	case "services":
		return &corev1.ServiceList{}, corev1.SchemeGroupVersion
	case "nodes":
		return &corev1.NodeList{}, corev1.SchemeGroupVersion
	case "endpointslices":
		return &discoveryv1.EndpointSliceList{}, discoveryv1.SchemeGroupVersion
	}
	return &networkingv1.ServiceCIDRList{}, networkingv1.SchemeGroupVersion
}

// serveWatch writes events until the client disconnects or the epoch ends.
func (f *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request, media runtime.SerializerInfo, resource string, epoch int) {
	query := r.URL.Query()
	at, _ := strconv.Atoi(query.Get("resourceVersion"))
	_, version := listOf(resource)
	w.Header().Set("Content-Type", media.MediaType)
	frames := f.codecs.EncoderForVersion(media.StreamSerializer.Serializer, schema.GroupVersion{Version: "v1"})
	to := media.StreamSerializer.NewFrameWriter(w)
	send := func(kind watch.EventType, object runtime.Object) {
		raw, err := runtime.Encode(f.codecs.EncoderForVersion(media.Serializer, version), f.sent(r, object))
		if err != nil {
			panic(err)
		}
		if err := frames.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}, to); err != nil {
			return // the client has disconnected; the request's context ends
		}
	}
	f.lockIn(epoch)
	if query.Get("sendInitialEvents") == "true" {
		for _, object := range f.objects[resource] {
			send(watch.Added, object)
			if f.breakOff[resource] > 0 {
				f.breakOff[resource]--
				f.mu.Unlock()
				return
			}
		}
		for _, l := range f.late {
			if l.resource == resource {
				send(l.kind, l.object)
			}
		}
		at = f.version
		send(watch.Bookmark, f.bookmark(resource))
	}
	for {
		for _, h := range f.history {
			if h.version > at && h.resource == resource {
				send(h.kind, h.object)
			}
		}
		at = max(at, f.version)
		changed, over := f.changed, f.epoch != epoch
		f.mu.Unlock()
		w.(http.Flusher).Flush()
		if over {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		f.mu.Lock()
	}
}

// bookmark returns the event that ends the initial events of a stream.
func (f *fakeAPI) bookmark(resource string) runtime.Object {
	of := metav1.ObjectMeta{ResourceVersion: strconv.Itoa(f.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	switch resource {
	case "services":
		return &corev1.Service{ObjectMeta: of}
	case "nodes":
		return &corev1.Node{ObjectMeta: of}
	case "endpointslices":
		return &discoveryv1.EndpointSlice{ObjectMeta: of}
	}
	return &networkingv1.ServiceCIDR{ObjectMeta: of}
}
