package inspect

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// client returns a Client of a test server.
func client(t *testing.T, handler http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := NewClient(server.URL)
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	c, err := NewClient(address)
	must(t, err)
	var notRunning *NotRunningError
	if _, err := c.Info(t.Context()); !errors.As(err, &notRunning) || notRunning.Server != "http://"+address {
		t.Errorf("without a server: %v", err)
	}
	for _, address := range []string{"", "localhost", "https://127.0.0.1:10249", "http://127.0.0.1:10249/metrics", "::1:10249:x", "/tmp/socket"} {
		if c, err := NewClient(address); err == nil {
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

// TestTrial proves when real connections agree with an explanation.
func TestTrial(t *testing.T) {
	explained := func(verdict, protocol string) *v1alpha1.Explanation {
		return &v1alpha1.Explanation{Verdict: verdict, Protocol: protocol, Endpoints: []string{"10.0.0.1:80"}}
	}
	for _, test := range []struct {
		trial  Trial
		agrees bool
		says   string
	}{
		{Trial{explained: explained("Balance", "TCP"), Connected: 3}, true, "This is what was explained."},
		{Trial{explained: explained("Balance", "TCP"), Refused: 3}, false, "not what was explained"},
		{Trial{explained: explained("Balance", "TCP"), Refused: 3, Reached: map[string]uint64{"10.0.0.1:80": 3}}, true, "not all endpoints answer"},
		{Trial{explained: explained("Balance", "TCP"), TimedOut: 3, Reached: map[string]uint64{"10.0.0.1:80": 2}}, false, "10.0.0.1:80 got 2"},
		{Trial{explained: explained("Balance", "UDP"), TimedOut: 3}, false, "Nothing answered, and connections are not counted"},
		{Trial{explained: explained("Balance", "UDP"), TimedOut: 3, Reached: map[string]uint64{"10.0.0.1:80": 3}}, true, "This is what was explained."},
		{Trial{explained: explained("Balance", "UDP"), TimedOut: 3, Reached: map[string]uint64{}}, false, "not what was explained"},
		{Trial{explained: explained("Balance", "UDP"), Connected: 1, TimedOut: 2}, true, "2 without an answer"},
		{Trial{explained: explained("Balance", "UDP"), Denied: 1, TimedOut: 2}, false, "1 denied at send"},
		{Trial{explained: explained("Reject", "TCP"), Refused: 3}, true, "3 refused"},
		{Trial{explained: explained("Reject", "TCP"), Connected: 1, Refused: 2}, false, "not what"},
		{Trial{explained: explained("Drop", "UDP"), Denied: 1, TimedOut: 2}, true, "This is"},
		{Trial{explained: explained("Drop", "TCP"), Refused: 3}, false, "not what"},
		{Trial{explained: explained("Pass", "TCP"), Failed: 3, Err: errors.New("no route")}, true, "3 failed: no route"},
	} {
		if text := test.trial.String(); test.trial.Agrees() != test.agrees || !strings.Contains(text, test.says) {
			t.Errorf("%+v agrees: %v, and says:\n%s", test.trial, test.trial.Agrees(), text)
		}
	}
}
