package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

var start = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)

var objects = clusters.Service("default/web", "clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]") +
	clusters.Slice("default/web", "web-1", "{name: http, port: 8080}",
		"{addresses: [10.244.1.2], nodeName: node1}", "{addresses: [10.244.2.2], nodeName: node2, conditions: {ready: false}}") +
	clusters.Service("other/db", "clusterIP: 10.96.0.11, ports: [{name: sql, port: 5432}]")

func snapshot(t *testing.T, objects string) *cluster.Snapshot {
	t.Helper()
	s, err := cases.Snapshot(objects, cluster.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counter counts 7 connections to each frontend and 3 to each endpoint, or fails. It counts less if least says so.
type counter struct {
	err   error
	least backend.Counting
}

func (c counter) Counts(cluster.Family) backend.Counting { return c.least }

func (c counter) Connections(_ context.Context, _ cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (*backend.Connections, error) {
	counts := backend.NewConnections()
	for route := range routes {
		counts.Frontends[route.Frontend] = 7
		for _, e := range route.Pool.Endpoints {
			if endpoints {
				to := backend.PortEndpoint{Port: route.Name, Protocol: route.Frontend.Protocol, Endpoint: e}
				counts.Endpoints[backend.EndpointCounter{PortEndpoint: to}] = 3
			}
		}
	}
	return counts, c.err
}

// shownRules is a Renderer whose kernel lacks one element. during is called while it reads the kernel.
type shownRules struct{ during func() }

func (*shownRules) Render(p *plan.Plan, _ cluster.Family) string {
	return fmt.Sprintf("rules of %d frontends", p.Frontends.Len())
}

func (*shownRules) Explain(p *plan.Plan, packet plan.Packet) plan.Path { return p.Explain(packet) }

func (r *shownRules) Compare(context.Context, *plan.Plan, cluster.Family) ([]backend.Difference, error) {
	if r.during != nil {
		r.during()
	}
	return []backend.Difference{{Object: "map services", Missing: []string{"a"}}}, nil
}

// tracked has connections to endpoints that are ready, not ready and gone, one that no Service has, and one of a protocol that none has.
func tracked(_ context.Context, visit func(cluster.Protocol, netip.AddrPort, netip.AddrPort)) error {
	for _, c := range []struct {
		protocol              cluster.Protocol
		destination, endpoint string
	}{
		{cluster.TCP, "10.96.0.10:80", "10.244.1.2:8080"}, {cluster.TCP, "10.96.0.10:80", "10.244.1.2:8080"}, {cluster.TCP, "10.96.0.10:80", "10.244.2.2:8080"},
		{cluster.TCP, "10.96.0.11:5432", "10.244.9.9:5432"}, {cluster.TCP, "192.0.2.1:80", "10.244.1.2:8080"}, {cluster.UDP, "10.96.0.10:80", "10.244.1.2:8080"},
	} {
		visit(c.protocol, netip.MustParseAddrPort(c.destination), netip.MustParseAddrPort(c.endpoint))
	}
	return nil
}

// observed returns an Observer that has seen one sync of the objects.
func observed(t *testing.T, objects string, counter backend.ConnectionCounter) *Observer {
	t.Helper()
	o := New(Config{Version: "v1", Mode: "nftables", Started: start, Families: []cluster.Family{cluster.IPv4}, Node: "node1",
		Renderers: map[string]backend.Renderer{"nftables": &shownRules{}}, Counter: counter, Tracked: tracked, Clock: testclock.NewFakePassiveClock(start.Add(time.Hour))})
	programs(o, snapshot(t, objects), start.Add(time.Second), nil)
	return o
}

// synced lets an Observer see a sync after the last one that succeeded.
func synced(o *Observer, s *proxy.Sync) {
	var history proxy.History
	history.Add(&proxy.Sync{Plan: o.State().Plan})
	o.Synced(history.Add(s))
}

// programs lets an Observer see a sync of a snapshot that takes a second.
func programs(o *Observer, s *cluster.Snapshot, began time.Time, err error) {
	synced(o, &proxy.Sync{After: s, Plan: plan.Compute(s, &plan.Options{}, nil), Started: began, Finished: began.Add(time.Second),
		Results: []backend.Result{{Family: cluster.IPv4, Duration: time.Second, Elements: 3, Err: err}}})
}

// get sends a request from a local client, changed by the given functions.
func get(h http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "127.0.0.1:10249"
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10249}))
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// decode decodes a response strictly into an object.
func decode[T any](t *testing.T, w *httptest.ResponseRecorder) (object T) {
	t.Helper()
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&object); err != nil {
		t.Fatalf("status %d: %v", w.Code, err)
	}
	return object
}

// TestGuard proves that only local clients are served, under a local name, and that nothing can be written.
func TestGuard(t *testing.T) {
	h := NewHandler(observed(t, objects, nil))
	on := func(local string) func(*http.Request) {
		return func(r *http.Request) {
			addr, err := net.ResolveTCPAddr("tcp", local)
			if err != nil {
				t.Fatal(err)
			}
			*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr))
		}
	}
	for _, test := range []struct {
		name                        string
		method, remote, host, local string
		want                        int
	}{
		{"by default", "", "", "", "", 200},
		{"head", http.MethodHead, "", "", "", 200},
		{"IPv6", "", "[::1]:4000", "[::1]:10249", "[::1]:10249", 200},
		{"IPv6, without a port", "", "[::1]:4000", "[::1]", "[::1]:10249", 200},
		{"IPv6, another address without a port", "", "[::1]:4000", "[2001:db8::1]", "[::1]:10249", 421},
		{"brackets without an address", "", "", "[]", "", 421},
		{"by name", "", "", "localhost:10249", "", 200},
		{"without a port", "", "", "localhost", "", 200},
		{"through a port forward", "", "", "localhost:31000", "", 200},
		{"on the node's address, from the node", "", "172.18.0.11:4000", "172.18.0.11:10249", "172.18.0.11:10249", 200},
		{"on the node's address, from loopback", "", "127.0.0.1:4000", "172.18.0.11:10249", "172.18.0.11:10249", 200},
		{"post", http.MethodPost, "", "", "", 405},
		{"delete", http.MethodDelete, "", "", "", 405},
		{"from another machine", "", "172.18.0.12:4000", "172.18.0.11:10249", "172.18.0.11:10249", 403},
		{"from a pod", "", "10.244.1.2:4000", "172.18.0.11:10249", "172.18.0.11:10249", 403},
		{"from another machine to loopback, by route_localnet", "", "172.18.0.12:4000", "", "", 403},
		{"with an unreadable source", "", "@", "", "", 403},
		{"rebound name", "", "", "attacker.example:10249", "", 421},
		{"rebound name that looks local", "", "", "127.0.0.1.attacker.example", "", 421},
		{"another address", "", "", "192.0.2.1:10249", "", 421},
		{"no host", "", "", " ", "", 421},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := get(h, v1alpha1.Path+"/services", func(r *http.Request) {
				for to, from := range map[*string]string{&r.Method: test.method, &r.RemoteAddr: test.remote, &r.Host: test.host} {
					if from != "" {
						*to = from
					}
				}
				if test.local != "" {
					on(test.local)(r)
				}
			})
			if allow := w.Header().Get("Allow"); (allow == "GET, HEAD") != (test.want == http.StatusMethodNotAllowed) {
				t.Errorf("the status is %d, and the header Allow %q", test.want, allow)
			}
			if w.Code != test.want {
				t.Errorf("status %d, want %d: %s", w.Code, test.want, w.Body)
			}
			if w.Code != 200 && strings.Contains(w.Body.String(), "10.96.0.10") {
				t.Errorf("the refusal shows content: %s", w.Body)
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control is %q", got)
			}
		})
	}
}

// TestHandler asks for every path.
func TestHandler(t *testing.T) {
	h := NewHandler(observed(t, objects, counter{}))
	for _, test := range []struct {
		path string
		code int
		// contains is a part of the body.
		contains string
	}{
		{"/info", 200, `"mode":"nftables"`},
		{"/services", 200, `"name":"db"`},
		{"/services?namespace=other", 200, `"namespace":"other"`},
		{"/services?address=10.244.2.2", 200, `"name":"web"`},
		{"/services?address=192.0.2.1", 200, `"items":[]`},
		{"/services?address=nonsense", 400, `\"nonsense\" is not an IPv4 or IPv6 address`},
		{"/services?connections=maybe", 400, `neither true nor false`},
		{"/services/default/web", 200, `"reason":"NotReady"`},
		{"/services/default/web?connections=true", 200, `"connections":3`},
		{"/services/default/wbe", 404, `did you mean default/web?`},
		{"/services/default/db", 404, `did you mean other/db?`},
		{"/explain?from=node&to=10.96.0.10:80", 200, `"verdict":"Balance"`},
		{"/explain?to=", 400, `is not a destination`},
		{"/explain?from=node&to=%5B::ffff:10.96.0.10%5D:80", 400, `ask for 10.96.0.10:80`},
		{"/digests", 200, `"kind":"Digests","apiVersion":"serviceproxy/v1alpha1","all":"`},
		{"/digests?services=true", 200, `"services":{"default/web":"`},
		{"/connections", 200, `"connections":4,"items":[{"namespace":"default","name":"web","protocol":"TCP","endpoint":"10.244.1.2:8080","state":"Ready","connections":2},`},
		{"/connections?service=default/web&endpoint=10.244.2.2", 200, `"connections":1,"items":[{"namespace":"default","name":"web","protocol":"TCP","endpoint":"10.244.2.2:8080","state":"NotReady"`},
		{"/connections?service=other/db", 200, `"endpoint":"10.244.9.9:5432","state":"Gone","connections":1}]}`},
		{"/connections?endpoint=10.244.1.9", 200, `"connections":0,"items":[]}`},
		{"/connections?service=web", 400, `\"web\" does not name a Service: write NAMESPACE/NAME`},
		{"/connections?service=default/wbe", 404, `did you mean default/web?`},
		{"/connections?endpoint=web", 400, `\"web\" is not an IPv4 or IPv6 address`},
		{"/repairs", 200, `"items":[]`},
		{"/history", 200, `"items":[{"start":"2026-11-22T08:01:00Z","syncs":0`},
		{"/rules", 200, `"mode":"nftables","families":[{"family":"IPv4","rules":"rules of 2 frontends"}]`},
		{"/rules?mode=ebpf", 400, `mode \"ebpf\" has no rules: write nftables`},
		{"/comparison", 200, `"items":[{"family":"IPv4","object":"map services","missing":["a"]}]`},
		{"/comparison?mode=ebpf", 400, `write nftables`},
		{"/nothing", 404, `docs/api.md`},
		{"/", 200, `"/api/v1alpha1/services/{namespace}/{name}"`},
		{"/services/default/web/more", 404, `docs/api.md`},
	} {
		w := get(h, v1alpha1.Path+test.path)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.contains) {
			t.Errorf("%s: status %d, want %d with %s:\n%s", test.path, w.Code, test.code, test.contains, w.Body)
		}
		if !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s is not JSON:\n%s", test.path, w.Body)
		}
	}
}

// TestStrictObjects proves that streamed objects are those of the types, field by field.
func TestStrictObjects(t *testing.T) {
	h := NewHandler(observed(t, objects, counter{}))
	list := decode[v1alpha1.ServiceList](t, get(h, v1alpha1.Path+"/services?connections=true"))
	if len(list.Items) != 2 || list.Kind != v1alpha1.KindServiceList || *list.Items[0].Connections != 7 {
		t.Errorf("got %+v", list)
	}
	service := decode[v1alpha1.Service](t, get(h, v1alpha1.Path+"/services/default/web"))
	if service.Connections != nil || service.Endpoints != (v1alpha1.EndpointCounts{Ready: 1, Local: 1, All: 2}) {
		t.Errorf("got %+v", service)
	}
}

// TestCountersFail proves that a list without counters is better than none, and says why.
func TestCountersFail(t *testing.T) {
	for _, test := range []struct {
		counter backend.ConnectionCounter
		want    string
	}{
		{counter{err: errors.New("no rights")}, "read the counters of IPv4: no rights"},
		{counter{least: backend.CountNothing}, "connections are not counted: --connection-counters is none, or counters would need too much memory (see the log)"},
		{nil, "no proxy runs here: there are no counters"},
	} {
		h := NewHandler(observed(t, objects, test.counter))
		list := decode[v1alpha1.ServiceList](t, get(h, v1alpha1.Path+"/services?connections=true"))
		if list.ConnectionsError != test.want || len(list.Items) != 2 || list.Items[0].Connections != nil {
			t.Errorf("got %+v, want the error %q", list, test.want)
		}
		service := decode[v1alpha1.Service](t, get(h, v1alpha1.Path+"/services/default/web?connections=true"))
		if service.ConnectionsError != test.want {
			t.Errorf("got %q, want %q", service.ConnectionsError, test.want)
		}
	}
}

// slowly is a counter that takes a second.
type slowly struct{ counter }

func (c slowly) Connections(ctx context.Context, family cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (*backend.Connections, error) {
	time.Sleep(time.Second)
	return c.counter.Connections(ctx, family, routes, endpoints)
}

// TestTimeOfCounters checks that answers have the time at which their counters were read, from which clients compute rates.
func TestTimeOfCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := backend.NewSharedCounter(slowly{})
		h := NewHandler(observed(t, objects, shared))
		go func() { _, _ = shared.Connections(t.Context(), cluster.IPv4, func(func(*plan.Route) bool) {}, false) }()
		synctest.Wait()
		began := time.Now().Add(time.Second) // after the other reader
		if list := decode[v1alpha1.ServiceList](t, get(h, v1alpha1.Path+"/services?connections=true")); !list.Time.Equal(began) {
			t.Errorf("the list is of %s, its counters of %s", list.Time, began)
		}
		began = time.Now()
		if web := decode[v1alpha1.Service](t, get(h, v1alpha1.Path+"/services/default/web?connections=true")); !web.Time.Equal(began) {
			t.Errorf("the Service is of %s, its counters of %s", web.Time, began)
		}
	})
}

// TestObserverChanges proves what is known of the last change of a Service: nothing after the start, then when it arrived,
// and after the first sync that succeeds how long it took.
func TestObserverChanges(t *testing.T) {
	o := observed(t, objects, nil)
	web := cluster.ServiceName{Namespace: "default", Name: "web"}
	if got := o.changed(web); got != nil {
		t.Errorf("after the start: %+v", got)
	}
	first := *o.snapshot
	renewed, _ := snapshot(t, strings.ReplaceAll(objects, "10.244.2.2", "10.244.2.3")).Services.Get(web)
	changed := first
	changed.Services = first.Services.Set(web, renewed)
	o.Queued(start.Add(10 * time.Second))
	o.Queued(start.Add(11 * time.Second))
	programs(o, &changed, start.Add(12*time.Second), errors.New("busy"))
	if got := o.changed(web); got == nil || got.Programmed != nil || !got.Arrived.Equal(start.Add(10*time.Second)) {
		t.Errorf("after a failed sync: %+v", got)
	}
	info := o.State().Describe()
	if info.Sync.Families[0].Error != "busy" || !info.Synced.Equal(start.Add(2*time.Second)) {
		t.Errorf("the last sync is %+v, the state is of %s", info.Sync, info.Synced)
	}
	if got := o.State().Service(web, nil); len(got.Ports[0].Endpoints) != 2 || got.Ports[0].Endpoints[1].Address != "10.244.2.2:8080" {
		t.Errorf("the state is not the one in force: %+v", got.Ports[0].Endpoints)
	}
	programs(o, &changed, start.Add(14*time.Second), nil)
	at, seconds := start.Add(15*time.Second), 5.0
	want := &v1alpha1.Change{Arrived: start.Add(10 * time.Second), Programmed: &at, Seconds: &seconds}
	if diff := cmp.Diff(want, o.changed(web)); diff != "" {
		t.Errorf("after a sync (-want +got):\n%s", diff)
	}
	if got := o.changed(cluster.ServiceName{Namespace: "other", Name: "db"}); got != nil {
		t.Errorf("another Service changed: %+v", got)
	}
	deleted := first
	deleted.Services = first.Services.Delete(web)
	programs(o, &deleted, start.Add(20*time.Second), nil)
	if got := o.changed(web); got != nil || len(o.changes) != 0 {
		t.Errorf("after its deletion: %+v", got)
	}
}

// TestFailingFamily shows the rules of each family by the plan that they implement while one family fails, and checks that a Service
// that is deleted and created again meanwhile is remembered once.
func TestFailingFamily(t *testing.T) {
	o := New(Config{Mode: "nftables", Families: []cluster.Family{cluster.IPv4, cluster.IPv6},
		Renderers: map[string]backend.Renderer{"nftables": &shownRules{}}, Clock: testclock.NewFakePassiveClock(start)})
	both := snapshot(t, objects)
	fewer := *both
	fewer.Services = both.Services.Delete(cluster.ServiceName{Namespace: "default", Name: "web"})
	sync := func(s *cluster.Snapshot, err error) {
		synced(o, &proxy.Sync{After: s, Plan: plan.Compute(s, &plan.Options{}, nil), Started: start, Finished: start,
			Results: []backend.Result{{Family: cluster.IPv4}, {Family: cluster.IPv6, Err: err}}})
	}
	want := func(when, want string) {
		t.Helper()
		rules, err := o.State().Ruleset("")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, family := range rules.Families {
			got = append(got, family.Family+" "+family.Rules)
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: %s; want %s", when, got, want)
		}
	}
	sync(both, nil)
	want("after a sync", "IPv4 rules of 2 frontends, IPv6 rules of 2 frontends")
	for range 5 {
		sync(&fewer, errors.New("busy"))
		want("while a family fails", "IPv4 rules of 1 frontends, IPv6 rules of 2 frontends")
		found, err := o.State().Explain(status.Question{From: status.FromNode, To: "10.96.0.10:80"})
		if err != nil || found.Verdict != v1alpha1.VerdictPass {
			t.Errorf("explained by an earlier plan than the family's: %+v, %v", found, err)
		}
		sync(snapshot(t, objects), errors.New("busy"))
		want("while a family fails", "IPv4 rules of 2 frontends, IPv6 rules of 2 frontends")
	}
	if len(o.pending) != 2 { // a new snapshot changes both Services
		t.Errorf("%d changes are pending: %v", len(o.pending), o.pending)
	}
	changed := snapshot(t, strings.ReplaceAll(objects, "10.96.0.10", "10.96.0.12"))
	web, _ := changed.Services.Get(cluster.ServiceName{Namespace: "default", Name: "web"})
	for _, err := range []error{errors.New("busy"), nil} {
		sync(changed, err)
		if same := o.State().Digests(true).Services["default/web"] == fmt.Sprintf("%016x", web.Digest()); same != (err == nil) {
			t.Errorf("with the error %v of a family, the digest is that of the Service: %v", err, same)
		}
	}
	sync(&fewer, nil)
	want("after the next success", "IPv4 rules of 1 frontends, IPv6 rules of 1 frontends")
	if len(o.pending) != 0 {
		t.Errorf("changes are pending after a success: %v", o.pending)
	}
}

// TestObserverRepairs proves that the last 100 repairs are kept, in their order.
func TestObserverRepairs(t *testing.T) {
	o := observed(t, objects, nil)
	for i := range maxRepairs + 5 {
		o.Drifted(backend.Drift{Family: cluster.IPv4, What: strings.Repeat("x", i)})
	}
	got := o.Repairs().Items
	if len(got) != maxRepairs || len(got[0].What) != 5 || len(got[maxRepairs-1].What) != maxRepairs+4 {
		t.Errorf("%d repairs, the first %q", len(got), got[0].What)
	}
}

// TestCompareDuringSyncs compares again after a sync came in between, and gives up if there is always one.
func TestCompareDuringSyncs(t *testing.T) {
	for _, test := range []struct{ syncs, comparisons int }{{0, 1}, {1, 2}, {attempts, attempts}} {
		o := observed(t, objects, nil)
		comparisons := 0
		o.config.Renderers["nftables"] = &shownRules{during: func() {
			comparisons++
			if comparisons <= test.syncs {
				programs(o, snapshot(t, objects), start.Add(time.Minute), nil)
			}
		}}
		found, err := o.Compare(t.Context(), "")
		if comparisons != test.comparisons || (err != nil) != (test.syncs == attempts) || err == nil && len(found.Items) != 1 {
			t.Errorf("with %d syncs: %d comparisons, want %d: %+v, %v", test.syncs, comparisons, test.comparisons, found, err)
		}
	}
}

// TestComparePause lets a second request wait until comparisons take a fifth of the time, and refuses one that would wait
// too long, early enough for the response.
func TestComparePause(t *testing.T) {
	for _, test := range []struct {
		takes time.Duration
		code  int
		after time.Duration
	}{{time.Second, http.StatusOK, 6 * time.Second}, {20 * time.Second, http.StatusServiceUnavailable, 20*time.Second + serve.TurnTimeout}} {
		synctest.Test(t, func(t *testing.T) {
			o := observed(t, objects, nil)
			o.config.Renderers["nftables"] = &shownRules{during: func() { time.Sleep(test.takes) }}
			h, began := NewHandler(o), time.Now()
			if w := get(h, v1alpha1.Path+"/comparison"); w.Code != http.StatusOK {
				t.Errorf("the first: status %d: %s", w.Code, w.Body)
			}
			if w := get(h, v1alpha1.Path+"/comparison"); w.Code != test.code || time.Since(began) != test.after {
				t.Errorf("the second: status %d after %s: %s; want %d after %s", w.Code, time.Since(began), w.Body, test.code, test.after)
			}
		})
	}
}
