package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// taken returns a listener on a loopback address.
func taken(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// hello returns a server that answers "hello".
func hello(address string) *Server {
	return &Server{
		Name: "hello", Address: address, Limit: NewLimits(1024, nil, func(string) {}).Metrics,
		HTTP: HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), time.Second, PagesIdle),
	}
}

// get sends a request until the server listens.
func get(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get("http://" + address)
	for err != nil {
		runtime.Gosched()
		response, err = http.Get("http://" + address)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestServer checks that Run serves, and frees the address when ctx ends.
func TestServer(t *testing.T) {
	listener := taken(t)
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- hello(address).Run(ctx) }()
	if got := get(t, address); got != "hello" {
		t.Errorf("got %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
		t.Error("the server still listens after Run returned")
	}
}

// TestServerWaitsForItsAddress checks that listen retries until the address is free, and reports the failure once,
// and not while a proxy before it may still end.
func TestServerWaitsForItsAddress(t *testing.T) {
	taken := taken(t)
	address := taken.Addr().String()
	synctest.Test(t, func(t *testing.T) {
		server := hello(address)
		failures := make(chan error, 10)
		server.Failed = func(err error) { failures <- err }
		listening := make(chan net.Listener)
		started := time.Now()
		go func() {
			listener, err := server.listen(t.Context())
			if err != nil {
				t.Error(err)
			}
			listening <- listener
		}()
		if err := <-failures; !strings.Contains(err.Error(), "cannot serve hello on "+address) {
			t.Errorf("unclear error: %v", err)
		}
		if after := time.Since(started); after < Handover {
			t.Errorf("reported after %s, want %s at least", after, Handover)
		}
		time.Sleep(10 * retryPeriod)
		if err := taken.Close(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		listener := <-listening
		if waited := time.Since(began); waited > retryPeriod {
			t.Errorf("listened %s after the address was free, want %s at most", waited, retryPeriod)
		}
		if len(failures) != 0 {
			t.Errorf("the same failure was reported %d times more", len(failures))
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestServerStopsWhileItWaits checks that Run returns when ctx ends while the address is in use.
func TestServerStopsWhileItWaits(t *testing.T) {
	address := taken(t).Addr().String()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- hello(address).Run(ctx) }()
		time.Sleep(10 * retryPeriod)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestServerFailsHard checks that Run returns the first error with HardFail.
func TestServerFailsHard(t *testing.T) {
	server := hello(taken(t).Addr().String())
	server.HardFail = true
	calls := 0
	server.Failed = func(error) { calls++ }
	if err := server.Run(t.Context()); err == nil || calls != 1 {
		t.Errorf("got error %v and %d calls of Failed, want an error and 1 call", err, calls)
	}
}

// TestHeadersAreLimited checks that a request with large headers is refused.
func TestHeadersAreLimited(t *testing.T) {
	listener := taken(t)
	server := HTTP(http.NotFoundHandler(), time.Second, PagesIdle)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Long", strings.Repeat("x", 64<<10))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return // the connection was closed while sending: refused as well
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %s, want 431", response.Status)
	}
}

// TestClientThatDoesNotRead requests a page that is larger than all buffers and reads nothing of it: the write timeout ends the
// request, so that clients cannot keep pages in memory.
func TestClientThatDoesNotRead(t *testing.T) {
	listener := taken(t)
	ended := make(chan error, 1)
	endless := HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 1<<20)
		for {
			if _, err := w.Write(part); err != nil {
				ended <- err
				return
			}
		}
	}), 100*time.Millisecond, PagesIdle)
	go func() { _ = endless.Serve(listener) }()
	defer endless.Close()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Log(err)
	case <-time.After(time.Minute):
		t.Error("the request has not ended")
	}
}
