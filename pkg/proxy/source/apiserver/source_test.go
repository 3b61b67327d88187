package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
)

var _ source.Source = (*Source)(nil)

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// slice returns the only slice of a Service, with this number of endpoints.
func slice(name string, endpoints int) *discoveryv1.EndpointSlice {
	portName, port := "", int32(8080)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)}})
	}
	return s
}

// bench is a running Source with its server and its log.
type bench struct {
	*testing.T
	api     *fakeAPI
	builder *cluster.Builder
	clock   *clocktesting.FakeClock
	source  *Source
	stop    func()

	mu   sync.Mutex
	log  []string
	held int
}

// patience is the limit for each wait.
const patience = 30 * time.Second

// run starts a Source without waiting until it is complete.
func run(t *testing.T, api *fakeAPI, options Options) *bench {
	b := &bench{T: t, api: api, builder: cluster.NewBuilder("n1"), clock: clocktesting.NewFakeClock(time.Now())}
	logger := funcr.New(func(_, args string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.log = append(b.log, args)
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	options.clock = b.clock
	options.backoff = &wait.Backoff{Duration: time.Millisecond, Cap: 5 * time.Millisecond, Steps: 10, Factor: 2}
	options.OnHeld = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held++
	}
	s, err := New(api.config(), "n1", options)
	if err != nil {
		t.Fatal(err)
	}
	b.source = s
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, b.builder) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

func (b *bench) complete() *bench {
	b.Helper()
	select {
	case <-b.source.Complete():
	case <-time.After(patience):
		b.Fatalf("never complete; the log is\n%s", strings.Join(b.logged(), "\n"))
	}
	return b
}

func (b *bench) logged() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

func (b *bench) until(what string, met func() bool) {
	b.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("%s never came; known is %q, the log is\n%s", what, b.known(), strings.Join(b.logged(), "\n"))
		}
	}
}

// known returns the Services with the number of their endpoints, and then that of the endpoints without a Service, if there
// are any: a deletion of both has not arrived as long as the slices are there.
func (b *bench) known() string {
	var names []string
	others := b.builder.Endpoints()
	for name, service := range b.builder.Snapshot().Services.All() {
		endpoints := 0
		for _, slice := range service.Slices {
			endpoints += len(slice.Endpoints)
		}
		names = append(names, fmt.Sprintf("%s=%d", name.Name, endpoints))
		others -= endpoints
	}
	if others != 0 {
		names = append(names, fmt.Sprintf("without a Service=%d", others))
	}
	return strings.Join(names, " ")
}

func (b *bench) want(want string) {
	b.Helper()
	b.until(fmt.Sprintf("Services %q", want), func() bool { return b.known() == want })
}

// relisted makes a change that ends watches, and waits until new lists have been processed.
func (b *bench) relisted(change func()) {
	b.Helper()
	counts := func() (n []int) {
		for _, r := range resources("n1") {
			n = append(n, b.api.count("stream "+r.Name)+b.api.count("list "+r.Name))
		}
		return n
	}
	before := counts()
	change()
	b.until("new lists", func() bool {
		for i, n := range counts() {
			if n <= before[i] {
				return false
			}
		}
		return true
	})
	// An addition may be part of a list; a deletion is part of the watch that follows.
	mark, markSlice := service("zz-mark"), slice("zz-mark", 1)
	b.api.put(mark, markSlice)
	b.until("new objects", func() bool { return strings.Contains(b.known(), "zz-mark=1") })
	b.api.remove(markSlice)
	b.until("the end of a list of slices", func() bool { return strings.Contains(b.known(), "zz-mark=0") })
	b.api.remove(mark)
	b.until("the end of a list of Services", func() bool { return !strings.Contains(b.known(), "zz-mark") })
}

// waitLog waits until the log has a line that contains all parts, and returns the number of such lines.
func (b *bench) waitLog(parts ...string) (lines int) {
	b.Helper()
	b.until(fmt.Sprintf("a log line with %q", parts), func() bool {
		lines = 0
		for _, line := range b.logged() {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				lines++
			}
		}
		return lines > 0
	})
	return lines
}

// servers are configurations of the server.
var servers = map[string]func(*fakeAPI){
	"streams, protobuf": func(*fakeAPI) {},
	"streams, JSON":     func(f *fakeAPI) { f.mediaType = runtime.ContentTypeJSON },
	"lists, protobuf":   func(f *fakeAPI) { f.noStreams = true },
	"lists, JSON":       func(f *fakeAPI) { f.noStreams, f.mediaType = true, runtime.ContentTypeJSON },
	"lists in pages":    func(f *fakeAPI) { f.noStreams, f.pageLimit = true, 3 },
	"no ServiceCIDRs":   func(f *fakeAPI) { f.noCIDRs = true },
}

// TestSource creates, changes and deletes objects, with every kind of server.
func TestSource(t *testing.T) {
	for name, kind := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, kind)
			want := ""
			for i := range 10 {
				name := fmt.Sprintf("s%d", i)
				api.put(service(name), slice(name, i))
				want += fmt.Sprintf("%s=%d ", name, i)
			}
			want = strings.TrimSpace(want)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}}
			cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/16"}}}
			api.put(node, cidr)
			b := run(t, api, Options{}).complete()
			if got := b.known(); got != want {
				t.Fatalf("complete with %q, want %q", got, want)
			}
			snap := b.builder.Snapshot()
			if snap.Node.Zone != "z1" || (len(snap.ServiceCIDRs) == 1) == api.noCIDRs {
				t.Errorf("complete with zone %q and ServiceCIDRs %v", snap.Node.Zone, snap.ServiceCIDRs)
			}

			api.put(slice("s0", 5))
			b.want(strings.Replace(want, "s0=0", "s0=5", 1))
			api.remove(service("s1"))
			b.want("s0=5" + strings.TrimPrefix(want, "s0=0 s1=1") + " without a Service=1")
			api.put(service("s1")) // its slice was known before
			b.want("s0=5" + strings.TrimPrefix(want, "s0=0"))
			api.remove(slice("s1", 1))
			b.want("s0=5 s1=0" + strings.TrimPrefix(want, "s0=0 s1=1"))

			t.Log("a watch that ends resumes without a list")
			lists := api.count("stream endpointslices") + api.count("list endpointslices")
			api.hangUp()
			api.put(slice("s1", 7))
			b.want("s0=5 s1=7" + strings.TrimPrefix(want, "s0=0 s1=1"))
			if now := api.count("stream endpointslices") + api.count("list endpointslices"); now != lists {
				t.Errorf("%d more lists", now-lists)
			}

			t.Log("a server that lost its history is listed again")
			api.lose(service("s2"), slice("s3", 3))
			b.relisted(api.restart)
			b.want("s0=5 s1=7 s3=0" + strings.TrimPrefix(want, "s0=0 s1=1 s2=2 s3=3") + " without a Service=2")

			api.remove(node, cidr)
			b.until("no Node", func() bool { return !b.builder.Snapshot().Node.Exists })
			b.until("no ServiceCIDRs", func() bool { return len(b.builder.Snapshot().ServiceCIDRs) == 0 })
		})
	}
}

// TestStreamBreaksOff requests another stream if one ends in the middle, and not a list, which would be a single response. There is a pause
// before each, and the reason is known.
func TestStreamBreaksOff(t *testing.T) {
	const times = 100
	api := newFakeAPI(t, func(f *fakeAPI) { f.breakOff = map[string]int{"services": times, "endpointslices": 1} })
	api.put(service("a"), slice("a", 1), service("b"), slice("b", 2))
	began, reported := time.Now(), atomic.Bool{}
	b := run(t, api, Options{OnFailure: func(resource, cause string) {
		if resource == "services" && cause == "unreachable" {
			reported.Store(true)
		}
	}}).complete()
	b.want("a=1 b=2")
	if took := time.Since(began); took < times*4*time.Millisecond {
		t.Errorf("%d streams break off within %s", times, took)
	}
	if !reported.Load() {
		t.Error("the failure is not reported")
	}
	b.waitLog("streaming a list of", "unexpected EOF")
	for request, want := range map[string]int{"stream services": times + 1, "stream endpointslices": 2, "list services": 0, "list endpointslices": 0} {
		if got := api.count(request); got != want {
			t.Errorf("%s: %d requests, want %d", request, got, want)
		}
	}
}

// TestStreamWithChanges receives changes before the bookmark at the end of a streamed list: also of objects that an earlier list
// contained.
func TestStreamWithChanges(t *testing.T) {
	api := newFakeAPI(t)
	api.put(service("a"), slice("a", 1), service("b"), slice("b", 2), service("c"), slice("c", 3))
	b := run(t, api, Options{}).complete()
	b.want("a=1 b=2 c=3")
	b.relisted(func() {
		api.set(func(f *fakeAPI) {
			f.late = []change{
				{resource: "services", kind: watch.Deleted, object: service("b")},
				{resource: "services", kind: watch.Deleted, object: service("unknown")},
				{resource: "services", kind: watch.Bookmark, object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}},
				{resource: "services", kind: watch.Added, object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}, // of another kind
				{resource: "services", kind: watch.Deleted, object: service("c")},
				{resource: "services", kind: watch.Added, object: service("c")},
				{resource: "endpointslices", kind: watch.Modified, object: slice("a", 5)},
			}
		})
		api.restart()
	})
	b.want("a=5 c=3 without a Service=2")
	api.put(slice("c", 4)) // the watch goes on
	b.want("a=5 c=4 without a Service=2")
	b.waitLog("Ignoring an event of a list", "*v1.Node instead of *v1.Service")
}

// TestSelectors checks the selectors and media types of the requests. The selectors are those of Kubernetes' kube-proxy 1.37.2.
func TestSelectors(t *testing.T) {
	api := newFakeAPI(t)
	run(t, api, Options{}).complete().stop()
	api.mu.Lock()
	defer api.mu.Unlock()
	want := map[string]map[string]string{
		"services":       {"fields": "spec.clusterIP!=None", "labels": "!service.kubernetes.io/service-proxy-name", "accept": apiclient.ProtoOrJSON},
		"endpointslices": {"fields": "", "labels": "!service.kubernetes.io/headless", "accept": apiclient.ProtoOrJSON},
		"nodes":          {"fields": "metadata.name=n1", "labels": "", "accept": apiclient.ProtoOrJSON},
		"servicecidrs":   {"fields": "", "labels": "", "accept": apiclient.ProtoOrJSON},
	}
	for resource, query := range api.lastQuery {
		query["accept"] = strings.ReplaceAll(strings.ReplaceAll(query["accept"], ";stream=watch", ""), ";type=watch", "")
		if diff := cmp.Diff(want[resource], query); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resource, diff)
		}
		delete(want, resource)
	}
	if len(want) > 0 {
		t.Errorf("never requested: %v", want)
	}
}

// TestRefusals checks that the last known state is kept and a hint is logged for each kind of error.
func TestRefusals(t *testing.T) {
	resource := schema.GroupResource{Resource: "x"}
	tests := []struct {
		name   string
		kind   string
		err    *apierrors.StatusError
		advice string
		// lines is how often the advice is logged in each period of refusals.
		lines int
	}{
		{"unauthorized", "unauthorized", apierrors.NewUnauthorized("who are you"), "the credentials are not accepted", 1},
		{"forbidden", "forbidden", apierrors.NewForbidden(resource, "", nil), "bind the ClusterRole system:node-proxier", 4},
		{"not found", "missing", apierrors.NewNotFound(resource, "x"), "check that its address leads to a Kubernetes API server", 2}, // two are optional
		{"too many requests", "busy", apierrors.NewTooManyRequests("later", 0), "is overloaded", 1},
		{"internal error", "failing", apierrors.NewInternalError(fmt.Errorf("oops")), "has an internal error", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.put(service("a"), slice("a", 1))
			refuse := func(*http.Request) *metav1.Status { return test.err.ErrStatus.DeepCopy() }
			api.set(func(f *fakeAPI) { f.refuse = refuse })
			var failing sync.Map
			b := run(t, api, Options{OnFailure: func(resource, cause string) { failing.Store(resource, cause) }})
			count := func() int { return b.waitLog(test.advice) }
			b.until("the advice", func() bool { return count() == test.lines })
			b.until("the reason in what is missing", func() bool {
				missing, hint := b.source.Missing()
				return strings.Contains(missing, "endpointslices ("+test.kind+")") && strings.Contains(hint, test.advice)
			})
			// Of all resources: the failure of one that is noted when all others have succeeded again begins another period.
			for _, r := range resources("n1") {
				if r.optional && apierrors.IsNotFound(test.err) {
					continue // that is no failure
				}
				b.until("the reason of "+r.Name, func() bool {
					cause, _ := failing.Load(r.Name)
					return cause == test.kind
				})
			}
			select {
			case <-b.source.Complete():
				t.Error("complete without an answer")
			default:
			}
			api.set(func(f *fakeAPI) { f.refuse = nil })
			b.complete().want("a=1")
			if missing, _ := b.source.Missing(); missing != "" {
				t.Errorf("complete without %s", missing)
			}
			b.waitLog("List and watch succeed again", `"failure"="`+test.kind+`"`)
			b.until("no reason", func() bool {
				none := true
				failing.Range(func(_, cause any) bool { none = none && cause == ""; return true })
				return none
			})

			api.set(func(f *fakeAPI) { f.refuse = refuse })
			before := len(api.snapshotRequests())
			api.restart()
			b.until("the advice once more", func() bool { return count() == 2*test.lines })
			b.until("many tries", func() bool { return len(api.snapshotRequests()) > before+100 })
			b.want("a=1")
			if lines := count(); lines != 2*test.lines {
				t.Errorf("the hint is logged %d times, want %d times in each of two periods of refusals", lines, test.lines)
			}
			api.set(func(f *fakeAPI) { f.refuse = nil })
			api.put(slice("a", 2))
			b.want("a=2")
		})
	}
}

func (f *fakeAPI) snapshotRequests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// TestOptionalForbidden starts without permission to read ServiceCIDRs or the Node.
func TestOptionalForbidden(t *testing.T) {
	for _, resource := range []string{"servicecidrs", "nodes"} {
		api := newFakeAPI(t, func(f *fakeAPI) {
			f.refuse = func(r *http.Request) *metav1.Status {
				if strings.Contains(r.URL.Path, resource) {
					return &apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil).ErrStatus
				}
				return nil
			}
		})
		b := run(t, api, Options{}).complete()
		b.waitLog("allow list and watch of " + resource)
	}
}

// TestOptionalMissing runs with an API server without ServiceCIDRs that fails for a while: the failure ends for them, too.
func TestOptionalMissing(t *testing.T) {
	missing := func(r *http.Request) *metav1.Status {
		if strings.Contains(r.URL.Path, "servicecidrs") {
			return &apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, "").ErrStatus
		}
		return nil
	}
	failure := &apierrors.NewInternalError(fmt.Errorf("oops")).ErrStatus
	api := newFakeAPI(t, func(f *fakeAPI) {
		f.refuse = func(*http.Request) *metav1.Status { return failure.DeepCopy() }
	})
	var failing sync.Map
	b := run(t, api, Options{OnFailure: func(resource, cause string) { failing.Store(resource, cause) }})
	b.until("the failure", func() bool {
		cause, _ := failing.Load("servicecidrs")
		return cause == "failing"
	})
	api.set(func(f *fakeAPI) { f.refuse = missing })
	b.complete()
	b.until("no failure", func() bool {
		cause, _ := failing.Load("servicecidrs")
		return cause == ""
	})
	b.waitLog("List and watch succeed again")
}

// TestWatchForbidden allows list but not watch: lists that succeed in between do not end the failure.
func TestWatchForbidden(t *testing.T) {
	api := newFakeAPI(t, func(f *fakeAPI) {
		f.refuse = func(r *http.Request) *metav1.Status {
			if strings.HasSuffix(r.URL.Path, "services") && r.URL.Query().Get("watch") != "" {
				return &apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil).ErrStatus
			}
			return nil
		}
	})
	api.put(service("a"), slice("a", 1))
	var mu sync.Mutex
	var causes []string
	b := run(t, api, Options{OnFailure: func(resource, cause string) {
		mu.Lock()
		defer mu.Unlock()
		causes = append(causes, resource+" "+cause)
	}}).complete()
	b.until("many lists", func() bool { return api.count("list services") > 10 })
	api.put(service("b"), slice("b", 2))
	b.want("a=1 b=2")
	if lines := b.waitLog("allow list and watch of services"); lines != 1 {
		t.Errorf("the failure is logged %d times", lines)
	}
	api.set(func(f *fakeAPI) { f.refuse = nil })
	b.waitLog("List and watch succeed again", `"failure"="forbidden"`)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"services forbidden", "services "}; !slices.Equal(causes, want) {
		t.Errorf("causes are %q, want %q", causes, want)
	}
}

// TestUnreachable closes the connections, and then the server.
func TestUnreachable(t *testing.T) {
	api := newFakeAPI(t)
	api.put(service("a"), slice("a", 1))
	b := run(t, api, Options{}).complete()
	b.want("a=1")
	api.CloseClientConnections()
	api.put(slice("a", 2))
	b.want("a=2")
	api.Listener.Close()
	api.CloseClientConnections()
	b.waitLog("cannot be reached")
	b.want("a=2")
}

// TestForeignAnswers has a server that is no API server answer all requests with success: nothing of that is an empty list.
func TestForeignAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"page": "<html>Sign in</html>", "empty object": "{}", "other object": `{"status":"ok","items":[]}`, "other list": `{"kind":"PodList","apiVersion":"v1","items":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.put(service("a"), slice("a", 1))
			api.set(func(f *fakeAPI) { f.foreign = answer })
			b := run(t, api, Options{TrustLists: true})
			tries := func() {
				before := len(api.snapshotRequests())
				b.until("many tries", func() bool { return len(api.snapshotRequests()) > before+100 })
			}
			b.waitLog("no API server's answer")
			tries()
			select {
			case <-b.source.Complete():
				t.Error("complete without a list")
			default:
			}
			api.set(func(f *fakeAPI) { f.foreign = "" })
			b.complete().want("a=1")
			api.set(func(f *fakeAPI) { f.foreign = answer })
			api.restart()
			tries()
			if known := b.known(); known != "a=1" {
				t.Errorf("after such answers %q is known", known)
			}
		})
	}
}

// TestBadObjects checks that invalid fields are left out, and logged once for every version of an object.
func TestBadObjects(t *testing.T) {
	api := newFakeAPI(t)
	bad := service("bad")
	bad.Spec.ExternalIPs = []string{"192.0.2.1", "nonsense"}
	stray := slice("a", 1)
	stray.Name, stray.Labels = "stray", nil
	api.put(slice("late", 1000), stray, bad, slice("bad", 2))
	b := run(t, api, Options{}).complete()
	b.want("bad=2 without a Service=1000")
	api.put(service("late"))
	b.want("bad=2 late=1000")
	if lines := b.waitLog(`spec.externalIPs[1]: \"nonsense\" is not an IP address`); lines != 1 {
		t.Errorf("logged %d times", lines)
	}
	b.waitLog("EndpointSlice ns/stray: metadata.labels: it belongs to no Service")
	b.relisted(api.restart)
	if lines := b.waitLog("nonsense"); lines != 1 {
		t.Errorf("the same version is logged %d times", lines)
	}
	api.put(bad)
	b.until("a second line", func() bool { return b.waitLog("nonsense") == 2 })
	bad.Spec.ExternalIPs = nil
	api.put(bad)
	b.until("the valid Service", func() bool {
		s, _ := b.builder.Snapshot().Services.Get(cluster.ServiceName{Namespace: "ns", Name: "bad"})
		return len(s.ExternalIPs()) == 0
	})
}

// TestConfig checks the error for an invalid config.
func TestConfig(t *testing.T) {
	if _, err := New(&rest.Config{Host: "http://127.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere/ca.crt"}}, "n1", Options{}); err == nil {
		t.Error("no error without the CA's certificate")
	}
}
