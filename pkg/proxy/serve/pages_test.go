package serve

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
)

func pages() *Pages {
	return &Pages{
		Mode:      "nftables",
		Metrics:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1") }),
		Profiling: true,
		Start:     time.Unix(1, 0),
		Flags:     map[string]string{"v": "2", "cleanup": "false"},
	}
}

// request sends a request with this Accept header from a local client.
func request(handler http.Handler, method, path, accept, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	return send(handler, r, "127.0.0.1:40000", "localhost:10249")
}

// send sends a request from a client to 127.0.0.1 with a Host.
func send(handler http.Handler, r *http.Request, from, host string) *httptest.ResponseRecorder {
	r.RemoteAddr, r.Host = from, host
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10249})))
	return recorder
}

func TestPages(t *testing.T) {
	full := pages().Handler()
	bare := (&Pages{Mode: "iptables", Metrics: http.NotFoundHandler()}).Handler()
	shown := (&Pages{Metrics: http.NotFoundHandler(), Page: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plain(w, r.URL.Path+" as a page")
	})}).Handler()
	for _, test := range []struct {
		handler        http.Handler
		path           string
		code           int
		body, contains string
	}{
		{full, "/healthz", 200, "ok", ""},
		{full, "/proxyMode", 200, "nftables", ""},
		{bare, "/proxyMode", 200, "iptables", ""},
		{full, "/metrics", 200, "up 1", ""},
		{full, "/metrics/slis", 200, "", `kubernetes_healthcheck{name="ping",type="healthz"} 1`},
		{full, "/configz", 200, "{}", ""},
		{full, "/debug/pprof/", 200, "", "goroutine"},
		{full, "/debug/pprof", 301, "", ""},
		{full, "/debug/pprof/goroutine?debug=1", 200, "", "TestPages"},
		{bare, "/debug/pprof/", 404, "", ""},
		{full, "/debug/flags/v", 405, "", "PUT"},
		{bare, "/debug/flags/v", 404, "", ""},
		{bare, "/statusz", 404, "", ""},
		{bare, "/flagz", 404, "", ""},
		{full, "/", 404, "", ""},
		{shown, "/", 200, "/ as a page", ""},
		{shown, "/services/a/b", 200, "/services/a/b as a page", ""},
		{shown, "/services/a", 404, "", ""},
		{shown, "/else", 404, "", ""},
		{shown, "/healthz", 200, "ok", ""},
	} {
		answer := request(test.handler, http.MethodGet, test.path, "", "")
		body := answer.Body.String()
		if answer.Code != test.code || test.body != "" && body != test.body || !strings.Contains(body, test.contains) {
			t.Errorf("%s: got %d %q, want %d %q", test.path, answer.Code, body, test.code, test.body+test.contains)
		}
	}
}

func TestProxyModeIsPlainText(t *testing.T) {
	answer := request(pages().Handler(), http.MethodGet, "/proxyMode", "", "")
	if got := answer.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
	if got := answer.Header().Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options %q", got)
	}
}

func TestVerbosity(t *testing.T) {
	handler := pages().Handler()
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	was := flags.Lookup("v").Value.String()
	t.Cleanup(func() { _ = flags.Set("v", was) })
	for _, test := range []struct {
		body string
		code int
		v    string
	}{
		{"7", 200, "7"},
		{"many", 400, "7"},
		{strings.Repeat("1", 100), 400, "7"},
		{"3", 200, "3"},
	} {
		answer := request(handler, http.MethodPut, "/debug/flags/v", "", test.body)
		if v := flags.Lookup("v").Value.String(); answer.Code != test.code || v != test.v {
			t.Errorf("PUT %s: got %d and verbosity %s, want %d and %s: %s", test.body, answer.Code, v, test.code, test.v, answer.Body)
		}
	}
}

// TestPagesAndOthers asks for every page through a rebound name, as a web page would, and for those of the profiler from another machine:
// what changes the process is for local clients only. API and status page have a guard of their own.
func TestPagesAndOthers(t *testing.T) {
	handler := pages().Handler()
	for path, want := range map[string]struct{ rebound, remote int }{
		"/healthz": {421, 200}, "/metrics": {421, 200}, "/metrics/slis": {421, 200}, "/proxyMode": {421, 200}, "/configz": {421, 200}, "/statusz": {421, 200},
		"/flagz": {421, 200}, "/debug/pprof/": {421, 200}, "/debug/pprof/cmdline": {421, 404}, "/debug/pprof/heap": {421, 200}, "/debug/pprof/symbol": {421, 200},
		"/debug/pprof/trace?seconds=0.01": {421, 403}, "/debug/flags/v": {421, 403}, "/nothing": {421, 404},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			answer := send(handler, httptest.NewRequest(method, path, strings.NewReader("9")), "127.0.0.1:40000", "attacker.example:10249")
			if answer.Code != want.rebound {
				t.Errorf("%s %s through a rebound name: %d, want %d: %s", method, path, answer.Code, want.rebound, answer.Body)
			}
			answer = send(handler, httptest.NewRequest(method, path, strings.NewReader("9")), "192.0.2.1:4000", "127.0.0.1:10249")
			if answer.Code != want.remote {
				t.Errorf("%s %s from another machine: %d, want %d: %s", method, path, answer.Code, want.remote, answer.Body)
			}
		}
	}
}

// TestZPages reads the pages of a program that started 90 minutes ago, at the time at which a synctest bubble begins.
func TestZPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := pages()
		all.Start = time.Now()
		time.Sleep(90 * time.Minute)
		handler := all.Handler()
		for _, test := range []struct {
			path, accept string
			code         int
			media        string
			contains     []string
		}{
			{"/statusz", "", 200, "text/plain; charset=utf-8", []string{
				"kube-proxy statusz\n", "Started: Sat Jan  1 00:00:00 UTC 2000\nUp: 1h30m0s\n", "Paths: /configz /debug/flags/v ", " /statusz\n"}},
			{"/statusz", "*/*", 200, "text/plain; charset=utf-8", []string{"kube-proxy statusz"}},
			{"/statusz", "text/html, text/plain;q=0.5", 200, "text/plain; charset=utf-8", []string{"kube-proxy statusz"}},
			{"/statusz", "application/json", 406, "text/plain; charset=utf-8", []string{"as=Statusz"}},
			{"/statusz", "application/json;g=config.k8s.io;v=v1beta1;as=Flagz", 406, "text/plain; charset=utf-8", nil},
			{"/statusz", "application/json;g=config.k8s.io;v=v9;as=Statusz", 406, "text/plain; charset=utf-8", nil},
			{"/statusz", "application/json;g=config.k8s.io;v=v1beta1;as=Statusz", 200, "application/json", []string{
				`"kind":"Statusz"`, `"apiVersion":"config.k8s.io/v1beta1"`, `"metadata":{"name":"kube-proxy"}`,
				`"startTime":"2000-01-01T00:00:00Z"`, `"uptimeSeconds":5400`, `"/proxyMode"`}},
			{"/flagz", "", 200, "text/plain; charset=utf-8", []string{"kube-proxy flags\n", "\n\ncleanup=false\nv=2\n"}},
			{"/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz", 200, "application/json", []string{
				`"apiVersion":"config.k8s.io/v1alpha1"`, `"flags":{"cleanup":"false","v":"2"}`}},
			{"/flagz", "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz", 200, "application/yaml", []string{
				"flags:\n  cleanup: \"false\"\n  v: \"2\"\n"}},
		} {
			answer := request(handler, http.MethodGet, test.path, test.accept, "")
			if answer.Code != test.code || answer.Header().Get("Content-Type") != test.media {
				t.Errorf("%s as %q: got %d %s, want %d %s", test.path, test.accept,
					answer.Code, answer.Header().Get("Content-Type"), test.code, test.media)
			}
			for _, part := range test.contains {
				if !strings.Contains(answer.Body.String(), part) {
					t.Errorf("%s as %q: no %q in\n%s", test.path, test.accept, part, answer.Body)
				}
			}
		}
	})
}

// TestHandlersAreIndependent creates several handlers in one process.
func TestHandlersAreIndependent(t *testing.T) {
	first, second := pages(), pages()
	second.Mode = "iptables"
	var got []string
	for _, p := range []*Pages{first, second} {
		got = append(got, request(p.Handler(), http.MethodGet, "/proxyMode", "", "").Body.String())
	}
	if diff := cmp.Diff([]string{"nftables", "iptables"}, got); diff != "" {
		t.Error(diff)
	}
}
