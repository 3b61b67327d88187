package announce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
)

// server is an API server on which a proxy may create Events but neither read nor change them.
type server struct {
	mu       sync.Mutex
	kept     map[string]*eventsv1.Event
	requests int
	// refusals are the codes of the next answers; 0 is no answer at all.
	refusals []int
	// hangs makes it answer nothing until the client gives up.
	hangs bool
	// trouble are the answers for namespaces, instead of all others; 0 is as hangs.
	trouble map[string]int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	var event eventsv1.Event
	code, reason := http.StatusCreated, metav1.StatusReason("")
	switch err := json.NewDecoder(r.Body).Decode(&event); {
	case err != nil:
		code, reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	case len(s.refusals) > 0:
		code, s.refusals = s.refusals[0], s.refusals[1:]
		reason = map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 500: metav1.StatusReasonInternalError}[code]
	case r.Method != http.MethodPost:
		code, reason = http.StatusForbidden, metav1.StatusReasonForbidden
	case s.kept[event.Namespace+"/"+event.Name] != nil:
		code, reason = http.StatusConflict, metav1.StatusReasonAlreadyExists
	default:
		s.kept[event.Namespace+"/"+event.Name] = &event
	}
	w.Header().Set("Content-Type", "application/json")
	if recorder, ok := w.(*httptest.ResponseRecorder); ok && code == 0 {
		recorder.Code = 0
		return
	}
	w.WriteHeader(code)
	var answer any = &event
	if code >= http.StatusBadRequest {
		answer = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// direct sends requests to the server without a network, as synctest requires.
type direct struct{ s *server }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	for namespace, code := range d.s.trouble {
		switch at := strings.Contains(r.URL.Path, "/namespaces/"+namespace+"/"); {
		case at && code == 0:
			<-r.Context().Done()
			return nil, r.Context().Err()
		case at:
			recorder := httptest.NewRecorder()
			http.Error(recorder, "trouble", code)
			return recorder.Result(), nil
		}
	}
	if d.s.hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	recorder := httptest.NewRecorder()
	d.s.ServeHTTP(recorder, r)
	if recorder.Code == 0 {
		return nil, errors.New("connection refused")
	}
	return recorder.Result(), nil
}

// newRecorder returns a Recorder that sends its requests to the server, at most so many a second.
func newRecorder(t *testing.T, s *server, qps float32) *Recorder {
	t.Helper()
	recorder, err := NewRecorder(&rest.Config{Host: "http://server", Transport: direct{s}, QPS: qps, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return recorder
}

// running runs a Recorder until stop is called, which returns when it has ended.
func running(t *testing.T, recorder *Recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- recorder.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// publish publishes events with a new Recorder, and returns what it logs.
func publish(t *testing.T, s *server, all ...proxy.Event) (log string) {
	t.Helper()
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
	recorder := newRecorder(t, s, -1)
	for _, e := range all {
		recorder.Event(e)
	}
	synctest.Wait() // Event may be called long before Run
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logger), time.Hour)
	defer cancel()
	if err := recorder.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return logger.GetSink().(ktesting.Underlier).GetBuffer().String()
}

func about(once string) proxy.Event {
	return proxy.Event{Kind: "Service", Namespace: "shop", Name: "web", UID: "8f0c", Warning: true, Reason: "ExternalIPsNotServed",
		Action: "ServeExternalIPs", Message: "It is not served.", Once: once}
}

// TestOnce checks that an Event with Once exists once, even if several processes publish it.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{kept: map[string]*eventsv1.Event{}}
		publish(t, s, about("192.0.2.1"), about("192.0.2.1"))
		publish(t, s, about("192.0.2.1"))
		if len(s.kept) != 1 || s.requests != 3 {
			t.Fatalf("%d events after %d requests", len(s.kept), s.requests)
		}
		publish(t, s, about("192.0.2.2"))
		made := about("192.0.2.1")
		made.UID = "77aa"
		publish(t, s, made)
		if len(s.kept) != 3 {
			t.Errorf("%d events, want one for each Service and field", len(s.kept))
		}
		for name, event := range s.kept {
			if !strings.HasPrefix(name, "shop/web.") || event.Type != "Warning" || event.ReportingController != "kube-proxy" ||
				!strings.HasPrefix(event.ReportingInstance, "kube-proxy-") || event.Regarding.Kind != "Service" || event.Regarding.UID == "" || event.EventTime.IsZero() {
				t.Errorf("%s is %+v", name, event)
			}
		}
	})
}

// TestBeforeRun checks that events before Run, such as that of the start, are not lost.
func TestBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{kept: map[string]*eventsv1.Event{}}
		publish(t, s, proxy.Event{Kind: "Node", Name: "node1", Reason: "Starting", Action: "StartKubeProxy", Message: "Starting."})
		if len(s.kept) != 1 {
			t.Fatalf("%d events, want one", len(s.kept))
		}
		for name, event := range s.kept {
			if !strings.HasPrefix(name, "default/node1.") || event.Regarding.UID != "node1" || event.Note != "Starting." {
				t.Errorf("%s is %+v", name, event)
			}
		}
	})
}

// TestLastWords checks that the event which says why the process ends is published, and that a server that does not answer delays
// the end by 2 s.
func TestLastWords(t *testing.T) {
	for name, test := range map[string]struct {
		server *server
		want   int
		takes  time.Duration
	}{"answers": {&server{}, 1, 0}, "away": {&server{refusals: []int{0}}, 0, 0}, "hangs": {&server{hangs: true}, 0, lastWords}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := test.server
				s.kept = map[string]*eventsv1.Event{}
				recorder := newRecorder(t, s, -1)
				stop := running(t, recorder)
				synctest.Wait()
				began := time.Now()
				recorder.Event(proxy.Event{Kind: "Node", Name: "node1", Warning: true, Reason: "FailedToStartMetricServer", Action: "StartKubeProxy", Message: "The address is in use."})
				stop()
				took := time.Since(began)
				s.mu.Lock()
				defer s.mu.Unlock()
				if len(s.kept) != test.want || took < test.takes || took > test.takes+lastWords/10 {
					t.Errorf("%d events are published, the end takes %v; want %d and %v", len(s.kept), took, test.want, test.takes)
				}
			})
		})
	}
}

// TestName checks that a name is one that the API accepts.
func TestName(t *testing.T) {
	for _, object := range []string{"n", strings.Repeat("n", 253), strings.Repeat("n", 230) + ".com.example.some-more.x"} {
		for _, unique := range []string{"", "x"} {
			got := name(object, "uid", unique)
			if problems := validation.IsDNS1123Subdomain(got); problems != nil || got == name(object, "uid", unique+"y") {
				t.Errorf("%s: %v", got, problems)
			}
		}
	}
}

// TestTrouble lets the server refuse the Events of one namespace, or not answer: those of others are published at once.
func TestTrouble(t *testing.T) {
	for _, code := range []int{0, 400, 413, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{kept: map[string]*eventsv1.Event{}, trouble: map[string]int{"bad": code}}
				recorder := newRecorder(t, s, 5)
				stop := running(t, recorder)
				for i := range 3 {
					e := about([]string{"", "x"}[i%2])
					e.Namespace, e.Name = "bad", fmt.Sprint(i)
					recorder.Event(e)
				}
				recorder.Event(proxy.Event{Kind: "Node", Name: "node1", Reason: "Starting", Action: "StartKubeProxy", Message: "Starting."})
				recorder.Event(about(""))
				time.Sleep(time.Second)
				s.mu.Lock()
				if len(s.kept) != 2 {
					t.Errorf("%d events are published after a second, want 2", len(s.kept))
				}
				s.mu.Unlock()
				stop()
			})
		})
	}
}

// TestManyNamespaces checks that Events which wait for the rate limit for minutes are published, and not taken for failures.
func TestManyNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{kept: map[string]*eventsv1.Event{}}
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(4)))
		recorder := newRecorder(t, s, 5)
		ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), logger), 5*time.Minute)
		defer cancel()
		for i := range 900 {
			e := about("192.0.2.1")
			e.Namespace = fmt.Sprint("n", i)
			recorder.Event(e)
		}
		if err := recorder.Run(ctx); err != nil {
			t.Error(err)
		}
		if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); len(s.kept) != 900 || log != "" {
			t.Errorf("%d of 900 events are published; the log is\n%s", len(s.kept), log)
		}
	})
}

// TestLastWordsFirst ends a process while more Events are pending than the rate limit allows: the one about the Node is published.
func TestLastWordsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{kept: map[string]*eventsv1.Event{}}
		recorder := newRecorder(t, s, 5)
		stop := running(t, recorder)
		for i := range 100 {
			e := about("192.0.2.1")
			e.Namespace, e.Name = fmt.Sprint("n", i%30), fmt.Sprint(i)
			recorder.Event(e)
		}
		time.Sleep(3 * time.Second)
		recorder.Event(proxy.Event{Kind: "Node", Name: "node1", Warning: true, Reason: "FailedToStartMetricServer", Action: "StartKubeProxy", Message: "The address is in use."})
		stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.kept) > 40 {
			t.Errorf("%d events are published, more than the rate limit allows", len(s.kept))
		}
		for name := range s.kept {
			if strings.HasPrefix(name, "default/node1.") {
				return
			}
		}
		t.Errorf("the last words are not among %d events", len(s.kept))
	})
}

// TestRetries checks that only temporary failures are retried.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{kept: map[string]*eventsv1.Event{}, refusals: []int{500, 500}}
		publish(t, s, about("192.0.2.1"))
		if len(s.kept) != 1 {
			t.Errorf("%d events after a server's failures, %d requests", len(s.kept), s.requests)
		}
		s = &server{kept: map[string]*eventsv1.Event{}, refusals: slices.Repeat([]int{503}, 7)} // for two minutes
		publish(t, s, about("192.0.2.1"))
		if len(s.kept) != 1 {
			t.Errorf("%d events after a server that was away for two minutes, %d requests", len(s.kept), s.requests)
		}
		s = &server{kept: map[string]*eventsv1.Event{}, refusals: []int{403}}
		publish(t, s, about("192.0.2.1"), about("192.0.2.2"))
		if len(s.kept) != 1 || s.requests != 2 {
			t.Errorf("%d events and %d requests after one was forbidden", len(s.kept), s.requests)
		}
	})
}

// TestLog checks that each cause of failures is logged once, with what to do, and never a whole Event.
func TestLog(t *testing.T) {
	start := proxy.Event{Kind: "Node", Name: "node1", Reason: "Starting", Action: "StartKubeProxy", Message: "Starting."}
	again := start
	again.Reason = "Again"
	tests := []struct {
		name     string
		refusals []int
		events   []proxy.Event
		want     string // in the only line about failures
		after    string // in the log after it
	}{
		{"unreachable, then not", []int{0, 0, 0, 0}, []proxy.Event{start}, "connection refused", "Events are published again"},
		{"forbidden", []int{403, 403}, []proxy.Event{start, again}, `hint="allow create of events of events.k8s.io`, ""},
		{"once forbidden", []int{403, 403}, []proxy.Event{about("a"), about("b")}, `name="web"`, ""},
		{"too long away", make([]int, 100), []proxy.Event{start}, "connection refused", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := publish(t, &server{kept: map[string]*eventsv1.Event{}, refusals: test.refusals}, test.events...)
				_, line, _ := strings.Cut(log, "ERROR")
				line, after, _ := strings.Cut(line, "\n")
				if !strings.Contains(line, test.want) || !strings.Contains(after, test.after) {
					t.Errorf("logged\n%s, want %q, then %q", log, test.want, test.after)
				}
				if strings.Count(log, "ERROR") != 1 || strings.Contains(log, "ObjectMeta") {
					t.Errorf("logged\n%s", log)
				}
			})
		})
	}
}

// TestBacklogIsBounded checks that Event does not block and that the number of pending events is bounded.
func TestBacklogIsBounded(t *testing.T) {
	recorder, err := NewRecorder(&rest.Config{Host: "http://server"})
	if err != nil {
		t.Fatal(err)
	}
	put := func(namespace string, number int) {
		for i := range number {
			e := about([]string{"192.0.2.1", ""}[i%2])
			e.Namespace, e.Name = namespace, fmt.Sprint(i)
			recorder.Event(e)
		}
	}
	want := func(when string, number int) {
		t.Helper()
		if got := recorder.pending.size; got != number {
			t.Errorf("%s %d events wait, want %d", when, got, number)
		}
	}
	put("flooded", 2*backlog)
	want("of one namespace", backlog/2)
	put("other", 10)
	want("of two namespaces", backlog/2+10)
	for i := range 2 * backlog {
		put(fmt.Sprint("n", i), 1)
	}
	want("of all namespaces", backlog)
	if rest := recorder.pending.rest(); len(rest) != backlog {
		t.Errorf("%d events are there, want %d", len(rest), backlog)
	}
	put("flooded", 2*backlog)
	want("of one namespace again", backlog/2)
}

// TestRateIsLimited lets a Service change all the time: it gets 25 Events, and then one every 5 minutes. Others are not affected.
func TestRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, err := NewRecorder(&rest.Config{Host: "http://server"})
		if err != nil {
			t.Fatal(err)
		}
		flood := func(want int) {
			t.Helper()
			before := recorder.pending.size
			for i := range 200 {
				recorder.Event(about(fmt.Sprint(i)))
			}
			if got := recorder.pending.size - before; got != want {
				t.Errorf("%d events, want %d", got, want)
			}
		}
		flood(25)
		time.Sleep(11 * time.Minute)
		flood(2)
		for _, change := range []func(*proxy.Event){func(e *proxy.Event) { e.Name = "api" }, func(e *proxy.Event) { e.Reason = "Contested" }} {
			before, e := recorder.pending.size, about("x")
			change(&e)
			recorder.Event(e)
			if recorder.pending.size != before+1 {
				t.Errorf("the event about %s for %s was not queued", e.Name, e.Reason)
			}
		}
	})
}

// TestNote checks that a long message is cut at the API's limit, between characters.
func TestNote(t *testing.T) {
	e := proxy.Event{Message: strings.Repeat("ä", noteLimit)}
	if got := note(&e); len(got) > noteLimit || !strings.HasSuffix(got, "ä...") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-8:])
	}
	e.Message = "short"
	if diff := cmp.Diff("short", note(&e)); diff != "" {
		t.Error(diff)
	}
}
