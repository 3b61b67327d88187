package view

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var shopObjects = clusters.Service("shop/web", "clusterIPs: [10.96.0.10], type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: ClientIP, "+
	"loadBalancerSourceRanges: [192.0.2.0/24], ports: [{name: http, port: 80, nodePort: 30080}]") +
	"status: {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}\n" +
	clusters.Slice("shop/web", "web-1", "{name: http, port: 8080}", "{addresses: [10.244.1.2], nodeName: node1}",
		"{addresses: [10.244.2.2], nodeName: node2}", "{addresses: [10.244.2.3], nodeName: node2, conditions: {ready: false}}") +
	clusters.Service("shop/db", "clusterIPs: [10.96.0.11], ports: [{port: 5432}]")

// fakeKernel counts ten connections a second to each address, which the endpoints share, or fails.
type fakeKernel struct {
	began time.Time
	takes time.Duration
	err   error
}

func (k *fakeKernel) Connections(ctx context.Context, _ cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (*backend.Connections, error) {
	select {
	case <-time.After(k.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	counts, n := backend.NewConnections(), uint64(time.Since(k.began).Seconds()*10)
	for r := range routes {
		if r.Verdict != plan.Balance {
			counts.Refused[r.Frontend] = n
			continue
		}
		counts.Frontends[r.Frontend] = n
		for i, e := range r.Pool.Endpoints {
			if endpoints {
				to := backend.PortEndpoint{Port: r.Name, Protocol: r.Frontend.Protocol, Endpoint: e}
				counts.Endpoints[backend.EndpointCounter{PortEndpoint: to, Frontend: r.Frontend}] = n * uint64(i+1) / 3
			}
		}
	}
	return counts, k.err
}

func (*fakeKernel) Counts(cluster.Family) backend.Counting { return backend.CountEndpoints }

// fixture is a page of a proxy on node1.
type fixture struct {
	*testing.T
	observer *Observer
	kernel   *fakeKernel
	healthy  bool
	waiting  []string
	invalid  []string
	history  proxy.History
	page     *Page
}

// newFixture returns a page before the first sync. It is used in a bubble of synctest, which starts at 2000-01-01.
func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, kernel: &fakeKernel{began: time.Now()}, healthy: true}
	f.observer = New(Config{
		Version: "v1.2.3", Mode: "nftables", Started: time.Now(), Families: []cluster.Family{cluster.IPv4}, Node: "node1",
		Unowned: func() []cluster.Unowned {
			return []cluster.Unowned{{Service: cluster.ServiceName{Namespace: "shop", Name: "wbe"}, Slices: []*cluster.EndpointSlice{{Name: "wbe-1"}}}}
		},
		Counter: backend.NewSharedCounter(f.kernel), Clock: clock.RealClock{}, Waiting: func() []string { return f.waiting },
		Invalid: map[string]func() []string{"InvalidManifest": func() []string { return f.invalid }},
	})
	f.page = NewPage(f.observer, func() bool { return f.healthy })
	return f
}

// sync programs objects now.
func (f *fixture) sync(objects string, err error) {
	f.Helper()
	s, parseErr := cases.Snapshot(objects, cluster.IPv4)
	if parseErr != nil {
		f.Fatal(parseErr)
	}
	f.program(s, err)
}

func (f *fixture) program(s *cluster.Snapshot, err error) {
	now, took := time.Now(), 2500*time.Microsecond
	f.observer.Synced(f.history.Add(&proxy.Sync{After: s, Plan: plan.Compute(s, &plan.Options{}, nil), Started: now, Finished: now.Add(took),
		Results: []backend.Result{{Family: cluster.IPv4, Duration: took, Err: err}}}))
}

// get requests a page as a local client.
func (f *fixture) get(path string) *httptest.ResponseRecorder {
	return f.request(http.MethodGet, path, "127.0.0.1:40000")
}

func (f *fixture) request(method, path, client string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.RemoteAddr, r.Host = client, "localhost:10249"
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10249}))
	w := httptest.NewRecorder()
	f.page.ServeHTTP(w, r)
	return w
}

var inline = regexp.MustCompile(`(?s)<(style|script)>.*?</(style|script)>`)

// TestGolden compares pages with those in testdata, without style and script.
func TestGolden(t *testing.T) {
	for name, show := range map[string]func(f *fixture) *httptest.ResponseRecorder{
		"starting": func(f *fixture) *httptest.ResponseRecorder {
			f.healthy, f.waiting, f.invalid = false, []string{"services"}, []string{"/manifests/web.yaml:3: spec.type: no <type>\n/manifests/web.yaml:7: too long"}
			return f.get("/")
		},
		"overview": func(f *fixture) *httptest.ResponseRecorder {
			f.lives()
			return f.get("/")
		},
		"service": func(f *fixture) *httptest.ResponseRecorder {
			f.lives()
			f.get("/services/shop/web")
			time.Sleep(5 * time.Second)
			return f.get("/services/shop/web")
		},
		"missing": func(f *fixture) *httptest.ResponseRecorder {
			f.lives()
			return f.get("/services/shop/wbe")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			synctest.Test(t, func(t *testing.T) { got = inline.ReplaceAllString(show(newFixture(t)).Body.String(), "<$1>…</$1>") })
			path := filepath.Join("testdata", name+".html")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s differs (-want +got); run make golden:\n%s", path, diff)
			}
		})
	}
}

// lives lets the proxy work for some minutes, with a failed sync, a repair, and an earlier look at the page.
func (f *fixture) lives() {
	f.sync(shopObjects, nil)
	time.Sleep(2 * time.Minute)
	f.sync(strings.ReplaceAll(shopObjects, "10.244.2.2", "10.244.2.4"), errors.New("netlink: no buffer space available"))
	time.Sleep(time.Minute)
	f.sync(strings.ReplaceAll(shopObjects, "10.244.2.2", "10.244.2.4"), nil)
	f.observer.Drifted(backend.Drift{Family: cluster.IPv4, What: "chain services: 1 rule is missing", Writer: "nft"})
	f.get("/")
	time.Sleep(5 * time.Second)
}

// TestHead checks the word about the proxy's health, and its reason.
func TestHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		check := func(state, tone, why string) {
			t.Helper()
			if h := f.page.head(f.observer.State()); h.State != state || h.Tone != tone || h.Why != why {
				t.Errorf("%q, %q, %q; want %q, %q, %q", h.State, h.Tone, h.Why, state, tone, why)
			}
		}
		f.healthy, f.waiting = false, []string{"services", "nodes"}
		check("Starting", warn, "No sync has finished yet; the rules of an earlier proxy stay in force, if there are any. Waiting for: services, nodes.")
		f.sync(shopObjects, errors.New("no rights"))
		f.waiting = nil
		check("Not healthy", bad, "IPv4: the last sync failed: no rights")
		f.healthy = true
		check("Sync failed", warn, "IPv4: the last sync failed: no rights")
		f.sync(shopObjects, nil)
		check("Healthy", good, "")
		f.healthy = false
		check("Not healthy", bad, "A change has been waiting for too long to be programmed.")
		f.observer.config.Invalid[v1alpha1.ReasonDataplane] = func() []string { return []string{"settings"} }
		check("Not healthy", bad, "")
	})
}

// TestUnsynced checks that pages say that nothing is known before rules are in force, and what no findings mean while a sync fails.
func TestUnsynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, path := range []string{"/", "/services/shop/web"} {
			text := f.get(path).Body.String()
			for _, wrong := range []string{"There are no Services", "it does not exist", "0 frontends", ">0</span> <span class=\"note\">of these"} {
				if strings.Contains(text, wrong) {
					t.Errorf("%s says %q before the first sync", path, wrong)
				}
			}
		}
		if w := f.get("/services/shop/web"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no sync has succeeded yet") {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		f.sync(clusters.Service("shop/web", "clusterIPs: [10.96.0.10], ports: [{port: 80}]")+clusters.Slice("shop/web", "web-1", "{name: '', port: 8080}", "{addresses: [10.244.1.2]}"), nil)
		f.observer.config.Unowned = nil
		const all, none = "This node serves connections to all Services.", "No Service has a problem of its own."
		if text := f.get("/").Body.String(); !strings.Contains(text, all) || strings.Contains(text, none) {
			t.Errorf("all is well: %s", text)
		}
		f.sync(shopObjects, errors.New("no rights"))
		if text := f.get("/").Body.String(); strings.Contains(text, all) || !strings.Contains(text, none) {
			t.Errorf("a sync failed: %s", text)
		}
	})
}

// TestLocalOnly checks that others than local readers get the API's answer, and that the headers let a page load nothing.
func TestLocalOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.sync(shopObjects, nil)
		for _, path := range []string{"/", "/services/shop/web"} {
			for _, test := range []struct {
				method, client string
				code           int
			}{{"GET", "127.0.0.1:4000", 200}, {"HEAD", "127.0.0.1:4000", 200}, {"POST", "127.0.0.1:4000", 405}, {"GET", "192.0.2.7:4000", 403}} {
				w := f.request(test.method, path, test.client)
				if w.Code != test.code || test.code != 200 && strings.Contains(w.Body.String(), "10.96.0.10") {
					t.Errorf("%s %s from %s: status %d, want %d: %s", test.method, path, test.client, w.Code, test.code, w.Body)
				}
				if test.code == 200 && !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-") {
					t.Errorf("Content-Security-Policy: %q", w.Header().Get("Content-Security-Policy"))
				}
			}
		}
		for path, want := range map[string]string{
			"/?sort=size": `The list cannot be sorted by &#34;size&#34;.`, "/?page=0": "no page &#34;0&#34;", "/?page=x": "no page",
			"/?sort=addresses": "cannot be sorted",
		} {
			if w := f.get(path); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
			}
		}
	})
}

// hostileNames break out of careless HTML.
func hostileNames() []string {
	return []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onclick='alert(1)`, `</title><b>`, `{{.}}`, `-->`, `a/b?c#d`,
		`javascript:alert(1)//`, "\x00\u202e<b>", `&lt;b&gt;`, `</style></script><b>`,
	}
}

// renamed returns a snapshot with the Services under each of these names, as namespace and before their own name.
func renamed(s *cluster.Snapshot, names ...string) *cluster.Snapshot {
	changed := *s
	changed.Services = cluster.Map[cluster.ServiceName, *cluster.Service]{}
	for _, name := range names {
		for _, service := range s.Services.All() {
			copied := *service
			copied.Name = cluster.ServiceName{Namespace: name, Name: name + service.Name.Name}
			changed.Services = changed.Services.Set(copied.Name, &copied)
		}
	}
	return &changed
}

// TestHostileNames shows names that break out of careless HTML, on every page. They must be text: no element or attribute
// exists that an ordinary name would not make too.
func TestHostileNames(t *testing.T) {
	shape := func(f *fixture, names ...string) (shapes []string) {
		f.Helper()
		ordinary, err := cases.Snapshot(shopObjects, cluster.IPv4)
		if err != nil {
			f.Fatal(err)
		}
		changed := renamed(ordinary, names...)
		f.program(changed, errors.New(names[0]))
		f.program(changed, nil)
		paths := []string{"/?q=" + strings.Repeat("%22%3E", 3) + "&show=%3Cb%3E"}
		for name := range changed.Services.All() {
			paths = append(paths, serviceURL(name))
		}
		paths = append(paths, "/", "/services/%3Cb%3E/%22")
		for _, path := range paths {
			shapes = append(shapes, elements(f, f.get(path).Body.String()))
		}
		return shapes
	}
	synctest.Test(t, func(t *testing.T) {
		want := shape(newFixture(t), "ordinary")
		for _, name := range hostileNames() {
			if diff := cmp.Diff(want, shape(newFixture(t), name)); diff != "" {
				t.Errorf("%q is more than text (-want +got):\n%s", name, diff)
			}
		}
	})
}

// elements lists all elements of a document with the names of their attributes, and checks the schemes of links.
func elements(f *fixture, text string) string {
	f.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		f.Fatal(err)
	}
	var b strings.Builder
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		b.WriteString(node.Data)
		for _, a := range node.Attr {
			fmt.Fprintf(&b, " %s", a.Key)
			if a.Key == "href" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") && !strings.HasPrefix(a.Val, "data:image/svg+xml,") {
				f.Errorf("a link leads to %q", a.Val)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
