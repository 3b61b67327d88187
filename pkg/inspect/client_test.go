package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// client returns a Client of a test server.
func client(t *testing.T, handler http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := NewClient(server.URL, time.Minute)
	must(t, err)
	return c
}

// TestClientErrors proves that each way in which a server is not this version's proxy has an error of its own.
func TestClientErrors(t *testing.T) {
	answer := func(code int, media, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		})
	}
	for _, test := range []struct {
		name    string
		handler http.Handler
		want    string
	}{
		{"older", http.NotFoundHandler(), "an older version of this program, or another one"},
		{"another version", answer(200, "application/json", `{"kind":"Info","apiVersion":"serviceproxy/v9"}`), `answered with Info "serviceproxy/v9", not with Info "serviceproxy/v1alpha1"`},
		{"another kind", answer(200, "application/json", `{"kind":"Pod","apiVersion":"v1"}`), `answered with Pod "v1"`},
		{"text", answer(200, "text/plain", "hello"), "read the answer"},
		{"wrong types", answer(200, "application/json", `{"kind":"Info","apiVersion":"serviceproxy/v1alpha1","services":"many"}`), "read the answer"},
		{"its own error", answer(403, "application/json", `{"kind":"Status","apiVersion":"serviceproxy/v1alpha1","code":403,"message":"go away"}`), "go away"},
		{"broken", answer(500, "text/plain", "oops"), "answered with 500"},
	} {
		if _, err := client(t, test.handler).Info(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
	endless := client(t, answer(200, "application/json", `{"kind":"`+strings.Repeat("a", 3<<20)))
	endless.limit = 2 << 20
	if _, err := endless.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "has more than 2 MiB") {
		t.Errorf("endless: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	c, err := NewClient(address, time.Minute)
	must(t, err)
	var notRunning *NotRunningError
	if _, err := c.Info(t.Context()); !errors.As(err, &notRunning) || notRunning.Server != "http://"+address {
		t.Errorf("without a server: %v", err)
	}
	for _, address := range []string{"", "localhost", "https://127.0.0.1:10249", "http://127.0.0.1:10249/metrics", "::1:10249:x", "/tmp/socket"} {
		if c, err := NewClient(address, time.Minute); err == nil {
			t.Errorf("%q is taken for %s", address, c.server)
		}
	}
	if list, err := of(load(t)["readiness"]).Services(t.Context(), status.Filter{Namespace: "nothing"}, false); err != nil || list.Items == nil {
		t.Errorf("items are null, not empty: %+v, %v", list, err)
	}
	if v1alpha1.Path != "/api/v1alpha1" || DefaultServer != "127.0.0.1:10249" {
		t.Error("the documented address has changed; see docs/api.md")
	}
}

// TestTrial proves when real connections agree with an explanation, and what is known of each endpoint.
func TestTrial(t *testing.T) {
	const a, b = "10.0.0.1:80", "10.0.0.2:80"
	explained := func(verdict, protocol string) *v1alpha1.Explanation {
		return &v1alpha1.Explanation{Verdict: verdict, Protocol: protocol, To: "10.96.0.10:80", Endpoints: []string{a, b}}
	}
	many := func(n int, err error) []error { return slices.Repeat([]error{err}, n) }
	type counted = map[string]uint64
	type asked = map[string]string
	for _, test := range []struct {
		verdict, protocol string
		results           []error
		counted           counted // before, each has been counted once
		asked             asked
		succeeds          bool
		says              string
	}{
		{"Balance", "TCP", many(3, nil), nil, nil, true, "This is what was explained."},
		{"Balance", "TCP", many(3, syscall.ECONNREFUSED), nil, nil, false, "not what was explained"},
		{"Balance", "TCP", many(3, syscall.ECONNREFUSED), counted{a: 4, b: 1}, asked{a: "refused", b: "no answer"}, false, "No endpoint answers"},
		{"Balance", "TCP", append(many(1, nil), syscall.ECONNREFUSED), nil, asked{a: "refused", b: "answered"}, false, "1 of 2 endpoints do not answer"},
		{"Balance", "TCP", append(many(1, nil), syscall.ECONNREFUSED), counted{a: 3, b: 1}, asked{a: "answered"}, false, "Each endpoint answers"},
		{"Balance", "TCP", many(3, syscall.ENETUNREACH), nil, nil, false, "this node has no route to 10"},
		{"Balance", "TCP", append(many(1, nil), syscall.EHOSTUNREACH), nil, asked{a: "no route to host", b: "answered"}, false, "1 of 2 endpoints do not answer"},
		{"Balance", "TCP", many(3, errSilent), counted{a: 3, b: 0}, nil, false, "10.0.0.1:80 got 2\n  10.0.0.2:80 got 0\n"},
		{"Balance", "UDP", many(3, errSilent), nil, nil, false, "Nothing answered, and connections are not counted"},
		{"Balance", "UDP", many(3, errSilent), counted{a: 4, b: 1}, nil, true, "This is what was explained."},
		{"Balance", "UDP", many(3, errSilent), counted{}, nil, false, "not what was explained"},
		{"Balance", "UDP", append(many(2, errSilent), nil), nil, nil, true, "2 without an answer"},
		{"Balance", "UDP", append(many(2, errSilent), syscall.EPERM), nil, nil, false, "1 denied at send"},
		{"Reject", "TCP", many(3, syscall.ECONNREFUSED), nil, nil, true, "3 refused"},
		{"Reject", "TCP", append(many(2, syscall.ECONNREFUSED), nil), nil, nil, false, "not what"},
		{"Drop", "UDP", append(many(2, errSilent), syscall.EPERM), nil, nil, true, "This is"},
		{"Drop", "TCP", many(3, syscall.ECONNREFUSED), nil, nil, false, "not what"},
		{"Pass", "TCP", many(3, errors.New("no route")), nil, nil, true, "3 failed: no route\nThe proxy does not handle such connections"},
	} {
		tried := &trial{explained: explained(test.verdict, test.protocol), unrouted: slices.Contains(test.results, error(syscall.ENETUNREACH))}
		for _, err := range test.results {
			tried.record(err)
		}
		tried.conclude(test.asked, counted{a: 1, b: 1}, test.counted)
		if text := trialText(&tried.Trial); tried.Succeeds != test.succeeds || !strings.Contains(text, test.says) {
			t.Errorf("%+v succeeds: %v, and says:\n%s", test, tried.Succeeds, text)
		}
	}
}

// TestHalfAnswer checks that an answer that does not end in time is named as one that does not come.
func TestHalfAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"kind": "Info", `)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	client, err := NewClient(server.URL, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Info(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer within 50ms") {
		t.Errorf("got %v", err)
	}
}

// TestGivenUp names the time that a question was waited for, if its asker gives up before the client does.
func TestGivenUp(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	client, err := NewClient(server.URL, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := client.Info(ctx); err == nil || !strings.Contains(err.Error(), "does not answer within ") || strings.Contains(err.Error(), "1h") {
		t.Errorf("got %v", err)
	}
}
