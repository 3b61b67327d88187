package apiserver

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// outage is a Source in a bubble of synctest, with a server whose answers and whose network can fail.
type outage struct {
	*fakeAPI
	builder *cluster.Builder

	mu sync.Mutex
	// answer answers a request instead of the server, if it returns true; nil if it never does.
	answer func(w http.ResponseWriter, r *http.Request) bool
	// connect returns instead of a connection; nil if there is a network.
	connect func(ctx context.Context) error
	conns   chan net.Conn
	closed  chan struct{}
	open    []net.Conn
	log     []string
	causes  []string
}

// startOutage starts a Source that uses the real backoff, and waits until it is complete.
func startOutage(t *testing.T, configure ...func(*fakeAPI)) *outage {
	o := &outage{fakeAPI: newHandler(), builder: cluster.NewBuilder("n1"), conns: make(chan net.Conn), closed: make(chan struct{})}
	for _, c := range configure {
		c(o.fakeAPI)
	}
	o.put(o.objects(1)...)
	server := &http.Server{Handler: http.HandlerFunc(o.serve)}
	go func() { _ = server.Serve(o) }()
	logger := funcr.New(func(_, args string) { o.with(func() { o.log = append(o.log, args) }) }, funcr.Options{})
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	s, err := New(&rest.Config{Host: "http://api", Dial: o.dial}, "n1", Options{OnFailure: func(resource, cause string) {
		o.with(func() { o.causes = append(o.causes, resource+" "+cause) })
	}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Run(ctx, o.builder) }()
	t.Cleanup(func() {
		cancel()
		server.Close()
		time.Sleep(time.Minute) // the Reflectors end after their last wait
		o.disconnect()
		synctest.Wait()
	})
	<-s.Complete()
	return o
}

func (o *outage) with(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// Accept, Close and Addr implement net.Listener.
func (o *outage) Accept() (net.Conn, error) {
	select {
	case conn := <-o.conns:
		return conn, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

func (o *outage) Close() error { close(o.closed); return nil }

func (o *outage) Addr() net.Addr { return &net.TCPAddr{} }

func (o *outage) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var connect func(context.Context) error
	o.with(func() { connect = o.connect })
	if connect != nil {
		if err := connect(ctx); err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
	}
	ours, theirs := net.Pipe()
	o.with(func() { o.open = append(o.open, ours, theirs) })
	select {
	case o.conns <- theirs:
		return ours, nil
	case <-o.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// disconnect closes all connections.
func (o *outage) disconnect() {
	o.with(func() {
		for _, conn := range o.open {
			conn.Close()
		}
		o.open = nil
	})
}

func (o *outage) serve(w http.ResponseWriter, r *http.Request) {
	var answer func(http.ResponseWriter, *http.Request) bool
	o.with(func() { answer = o.answer })
	if answer == nil || !answer(w, r) {
		o.ServeHTTP(w, r)
	}
}

// objects returns objects of all resources, which depend on i.
func (*outage) objects(i int) []runtime.Object {
	a := service("a")
	a.Spec.Ports[0].Port = int32(i)
	return []runtime.Object{a, slice("a", i),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i)}}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{fmt.Sprintf("10.%d.0.0/16", i)}}}}
}

// known returns what the Builder knows of objects: of each the number that made it.
func (o *outage) known() string {
	snap := o.builder.Snapshot()
	got := ""
	for _, s := range snap.Services.All() {
		got += fmt.Sprintf("%d ", s.Ports[0].Port)
	}
	got += fmt.Sprintf("%d %s", o.builder.Endpoints(), snap.Node.Zone)
	for _, cidr := range snap.ServiceCIDRs {
		got += fmt.Sprintf(" %d", cidr.Addr().As4()[1])
	}
	return got
}

// take returns how long it takes until the Builder knows what objects(i) are; two minutes at most.
func (o *outage) take(i int) time.Duration {
	want := fmt.Sprintf("%d %d %d %d", i, i, i, i)
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		if took := time.Since(start); o.known() == want || took > 2*time.Minute {
			return took
		}
	}
}

func (o *outage) logged(parts ...string) (lines int) {
	o.with(func() {
		for _, line := range o.log {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				lines++
			}
		}
	})
	return lines
}

// TestRecovery lets the API server, or the network to it, fail for minutes: as soon as it is back, the source is right within 15 s,
// for all resources.
func TestRecovery(t *testing.T) {
	status := func(code int, headers ...string) func(o *outage) {
		return func(o *outage) {
			o.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				for i := 0; i < len(headers); i += 2 {
					w.Header().Set(headers[i], headers[i+1])
				}
				http.Error(w, "no", code)
				return true
			}
		}
	}
	failures := map[string]func(o *outage){
		"internal error":                    status(http.StatusInternalServerError),
		"unavailable, retry after an hour":  status(http.StatusServiceUnavailable, "Retry-After", "3600"),
		"too many requests, retry in 1 min": status(http.StatusTooManyRequests, "Retry-After", "60"),
		"unauthorized":                      status(http.StatusUnauthorized),
		"not found":                         status(http.StatusNotFound),
		"refused connections": func(o *outage) {
			o.connect = func(context.Context) error { return syscall.ECONNREFUSED }
		},
		"no answer to a connection": func(o *outage) {
			// As the kernel: it repeats a SYN after 1, 3, 7, 15, 31 s, and so on.
			o.connect = func(ctx context.Context) error {
				for wait := time.Second; ; wait *= 2 {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(wait):
					}
					var gone bool
					o.with(func() { gone = o.connect != nil })
					if !gone {
						return nil
					}
				}
			}
		},
		"closed connections": func(o *outage) {
			o.answer = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
		},
	}
	for name, fail := range failures {
		for _, history := range []string{"kept", "lost"} {
			t.Run(name+", history "+history, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o, slowest := startOutage(t), time.Duration(0)
					for i := 2; i < 6; i++ {
						o.with(func() { fail(o) })
						o.hangUp()
						o.disconnect()
						time.Sleep(time.Duration(i) * time.Minute)
						o.put(o.objects(i)...)
						if history == "lost" {
							o.restart()
						}
						o.with(func() { o.answer, o.connect = nil, nil })
						took := o.take(i)
						if slowest = max(slowest, took); took > 15*time.Second {
							t.Errorf("after %d minutes it took %s; known is %s", i, took, o.known())
						}
					}
					t.Logf("at most %s", slowest)
				})
			})
		}
	}
}

// trickle answers requests that match with a byte a second, after the start.
func trickle(match func(r *http.Request) bool, start string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !match(r) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		if start != "" && start[0] != '{' {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		}
		_, _ = io.WriteString(w, start)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(time.Second)
		}
		return true
	}
}

func ofSlices(r *http.Request) bool { return path.Base(r.URL.Path) == "endpointslices" }

// TestSlowAnswers lets answers about one resource take for ever: they are given up, the log and the metric say so, what is known
// stays in force, and the next answer is used.
func TestSlowAnswers(t *testing.T) {
	streams, lists := func(*fakeAPI) {}, func(f *fakeAPI) { f.noStreams = true }
	frame := string(binary.BigEndian.AppendUint32(nil, 1<<20))
	silent := func(_ http.ResponseWriter, r *http.Request) bool {
		if ofSlices(r) {
			<-r.Context().Done()
		}
		return ofSlices(r)
	}
	for name, test := range map[string]struct {
		server func(*fakeAPI)
		answer func(http.ResponseWriter, *http.Request) bool
		// watch keeps the history, so that the slow answer is a watch.
		watch bool
	}{
		"list in JSON":       {lists, trickle(ofSlices, "{"), false},
		"list in protobuf":   {lists, trickle(ofSlices, "k8s\x00"), false},
		"stream in JSON":     {streams, trickle(ofSlices, "{"), false},
		"stream in protobuf": {streams, trickle(ofSlices, frame), false},
		"no beginning":       {streams, silent, false},
		"watch in JSON":      {streams, trickle(ofSlices, "{"), true},
		"watch in protobuf":  {streams, trickle(ofSlices, frame), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := startOutage(t, test.server)
				o.with(func() { o.answer = test.answer })
				if !test.watch {
					o.restart()
				}
				o.hangUp()
				synctest.Wait()
				o.put(o.objects(2)...)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if got := o.known(); got != "2 1 2 2" {
					t.Errorf("known is %s, want what is new of all others", got)
				}
				if o.logged("List or watch failed; keeping the last known state", "answer is too slow") != 1 || !slices.Contains(o.causes, "endpointslices slow") {
					t.Errorf("causes are %q, the log is\n%s", o.causes, strings.Join(o.log, "\n"))
				}
				o.with(func() { o.answer = nil })
				if took := o.take(2); took > headerWait+15*time.Second { // the last slow answer has to be given up first
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestQuietWatch checks that a watch may be silent, for hours: nothing is listed again, and nothing fails.
func TestQuietWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := startOutage(t)
		time.Sleep(6 * time.Hour)
		o.put(o.objects(2)...)
		if took := o.take(2); took > 15*time.Second {
			t.Errorf("a change took %s", took)
		}
		if lists := o.count("stream services") + o.count("list services"); lists != 1 || len(o.causes) > 0 {
			t.Errorf("%d lists, failures %q", lists, o.causes)
		}
		if watches := o.count("watch services"); watches < 6 {
			t.Errorf("%d watches in 6 hours, want more: a server that never ends one may have forgotten it", watches)
		}
	})
}

// TestEndlessPages lets each page of a list announce another one.
func TestEndlessPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := startOutage(t, func(f *fakeAPI) { f.noStreams = true })
		pages := 0
		o.with(func() {
			o.answer = func(w http.ResponseWriter, r *http.Request) bool {
				if !ofSlices(r) || r.URL.Query().Get("watch") != "" {
					return false
				}
				pages++
				fmt.Fprintf(w, `{"kind":"EndpointSliceList","metadata":{"resourceVersion":"20","continue":"%d"},"items":[{"metadata":{"namespace":"ns","name":"s%d","labels":{"kubernetes.io/service-name":"x"}}}]}`, pages, pages%10)
				return true
			}
		})
		o.restart()
		time.Sleep(15 * time.Minute)
		o.put(o.objects(2)...)
		o.take(2)
		if got := o.known(); got != "2 1 2 2" {
			t.Errorf("known is %s, want what is new of all others", got)
		}
		if o.logged("List or watch failed", "a list in pages does not end within 10m0s") != 1 || !slices.Contains(o.causes, "endpointslices oversized") {
			t.Errorf("causes are %q, the log is\n%s", o.causes, strings.Join(o.log, "\n"))
		}
		o.with(func() { o.answer = nil })
		o.take(2)
	})
}
