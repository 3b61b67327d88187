package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns checks that responses are made one at a time, and that a request does not wait for ever.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, serving, most := NewTurn(1), 0, 0
		handler := turn.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			serving++
			most = max(most, serving)
			time.Sleep(TurnTimeout * 2 / 3)
			serving--
		}))
		codes := make(chan int, 3)
		for range cap(codes) {
			go func() { codes <- request(handler, http.MethodGet, "/rules", "", "").Code }()
		}
		var refused int
		for range cap(codes) {
			if <-codes == http.StatusServiceUnavailable {
				refused++
			}
		}
		if most != 1 || refused != 1 {
			t.Errorf("%d at a time, %d of 3 refused; want 1 and 1", most, refused)
		}
	})
}

// TestTurnKeepsResponses checks that a response is the handler's.
func TestTurnKeepsResponses(t *testing.T) {
	for path, want := range map[string]int{"/": http.StatusOK, "/error": http.StatusTeapot, "/empty": http.StatusNotFound} {
		w := request(NewTurn(1).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/example")
			switch r.URL.Path {
			case "/error":
				w.WriteHeader(http.StatusTeapot)
				fallthrough
			case "/":
				fmt.Fprint(w, "one, ")
				fmt.Fprint(w, "two")
			case "/empty":
				w.WriteHeader(http.StatusNotFound)
			}
		})), http.MethodGet, path, "", "")
		body := "one, two"
		if path == "/empty" {
			body = ""
		}
		if w.Code != want || w.Body.String() != body || w.Header().Get("Content-Type") != "text/example" {
			t.Errorf("%s: status %d, %v: %s", path, w.Code, w.Header(), w.Body)
		}
	}
}

// TestReadersThatDoNotRead lets 100 clients request a large response and not read it: the next client gets it, the memory of those that
// wait is bounded, and the oldest of them are disconnected.
func TestReadersThatDoNotRead(t *testing.T) {
	const readers, size = 100, 3 << 20
	turn := NewTurn(1)
	server := httptest.NewUnstartedServer(Reading(turn.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	}))))
	server.Listener = smallBuffers{server.Listener}
	server.Start()
	t.Cleanup(server.Close) // after the clients, for which it waits
	waiting := func() (responses, bytes int) {
		turn.unread.mu.Lock()
		defer turn.unread.mu.Unlock()
		for _, u := range turn.unread.parts {
			bytes += u.size
		}
		return len(turn.unread.parts), bytes
	}
	for i := range readers {
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		_ = client.(*net.TCPConn).SetReadBuffer(4 << 10)
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		// The first byte shows that the request has had its turn: others would come in the way of the one that reads.
		_ = client.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := client.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("reader %d has no response", i)
		}
	}
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if n != size || err != nil {
		t.Errorf("read %d bytes, want %d: %v", n, size, err)
	}
	if n, bytes := waiting(); bytes > maxUnread || n > maxUnread/size {
		t.Errorf("%d responses with %d bytes wait for their readers, want at most %d", n, bytes, maxUnread)
	}
}

// smallBuffers is a listener whose kernel keeps little of a response.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err == nil {
		_ = connection.(*net.TCPConn).SetWriteBuffer(8 << 10)
	}
	return connection, err
}
