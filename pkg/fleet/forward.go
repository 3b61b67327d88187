package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
)

// podTransport is an HTTP transport that reaches the ports of one pod through the API server and the kubelet, as "kubectl port-forward" does: the
// pod sees a client on its own loopback address. The host of a URL is ignored, and only its port counts. It needs the rights create and
// get of pods/portforward, and connects to the API server with the first request.
type podTransport struct {
	*http.Transport
	config *rest.Config
	url    *url.URL

	mu   sync.Mutex // guards the fields below
	all  httpstream.Connection
	next int
}

// forwardTo returns the transport of a pod, for the API server of the clients, which connect as config says. Close it after use.
func forwardTo(config *rest.Config, clients apiclient.Clients, namespace, name string) *podTransport {
	pod := &podTransport{config: config, url: clients[apiclient.Pods.Version].Post().Namespace(namespace).Resource(apiclient.Pods.Name).Name(name).SubResource("portforward").URL()}
	pod.Transport = &http.Transport{DialContext: pod.dial, DisableCompression: true, MaxResponseHeaderBytes: maxHeader}
	return pod
}

// maxHeader is how long the header of an answer may be: a pod may send one without end.
const maxHeader = 64 << 10

// errNotForwarded is the error if there is no connection to the pod in time.
var errNotForwarded = errors.New("the API server has not connected to the pod in time (--request-timeout): it does not answer, or the kubelet of the node, " +
	"which kubectl logs needs, too")

// RoundTrip is part of [http.RoundTripper]. It connects first, so that the proxy is not blamed for the way to it.
func (p *podTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	var timeout net.Error
	switch _, _, err := p.upgraded(request.Context()); {
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, errNotForwarded
	case err != nil:
		return nil, fmt.Errorf("connect to the pod through the API server: %v", err) //nolint:errorlint // a refused connection is not the proxy's
	}
	return p.Transport.RoundTrip(request)
}

// Close ends all connections.
func (p *podTransport) Close() {
	p.CloseIdleConnections()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all != nil {
		p.all.Close()
		p.all = nil
	}
}

// upgraded returns the connection that holds all others. It is opened once; if it breaks, the next call opens another one.
func (p *podTransport) upgraded(ctx context.Context) (httpstream.Connection, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all != nil {
		select {
		case <-p.all.CloseChan():
			p.all = nil
		default:
		}
	}
	if p.all == nil {
		opened, err := p.open(ctx)
		if err != nil {
			return nil, 0, err
		}
		p.all = opened
	}
	p.next++
	return p.all, p.next, nil
}

// open asks the API server for a connection: by WebSocket, or by SPDY if it refuses, as kubectl does. The library's dialers have no
// context; what one that was given up returns later is closed.
func (p *podTransport) open(ctx context.Context) (httpstream.Connection, error) {
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(p.url, p.config)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(overWebSocket, lazily(p.overSPDY), func(err error) bool { return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) })
	type result struct {
		connection httpstream.Connection
		err        error
	}
	done := make(chan result, 1)
	go func() {
		connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- result{connection, err}
	}()
	select {
	case r := <-done:
		return r.connection, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				r.connection.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// overSPDY returns the dialer for API servers that refuse WebSockets.
func (p *podTransport) overSPDY() (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(p.config)
	if err != nil {
		return nil, err
	}
	return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, p.url), nil
}

// lazily makes a dialer when it is used: each one reads the certificates.
type lazily func() (httpstream.Dialer, error)

// Dial is part of [httpstream.Dialer].
func (l lazily) Dial(protocols ...string) (httpstream.Connection, string, error) {
	dialer, err := l()
	if err != nil {
		return nil, "", err
	}
	return dialer.Dial(protocols...)
}

// dial opens a connection to the port of an address.
func (p *podTransport) dial(ctx context.Context, _, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	all, id, err := p.upgraded(ctx)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(id))
	failures, err := all.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("open a stream for errors: %w", err)
	}
	failures.Close() // for writing: nothing is sent
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := all.CreateStream(headers)
	if err != nil {
		_ = failures.Reset()
		all.RemoveStreams(failures)
		return nil, fmt.Errorf("open a stream for data: %w", err)
	}
	c := &conn{Stream: data, port: port, failed: make(chan string, 1), closed: make(chan struct{})}
	c.end = sync.OnceValue(func() error {
		close(c.closed)
		err := data.Reset()
		all.RemoveStreams(data, failures)
		return err
	})
	go func() {
		text, _ := io.ReadAll(io.LimitReader(failures, maxFailure))
		c.failed <- string(text)
	}()
	return c, nil
}

const (
	// maxFailure is how much of an error's text is read.
	maxFailure = 4 << 10
	// failureWait is how long the text of an error may come after the end of the data.
	failureWait = time.Second
)

// conn is a connection to a port of the pod.
type conn struct {
	httpstream.Stream
	port   string
	failed chan string // the text of an error, empty if there is none
	closed chan struct{}
	end    func() error
}

// Read returns why the connection failed if it ends before anything was read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Stream.Read(b)
	if n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	select {
	case text := <-c.failed:
		switch {
		case strings.Contains(text, syscall.ECONNREFUSED.Error()):
			return 0, &net.OpError{Op: "dial", Net: "tcp", Addr: c.RemoteAddr(), Err: syscall.ECONNREFUSED}
		case text != "":
			return 0, fmt.Errorf("port %s of the pod: %s", c.port, strings.TrimSpace(text))
		}
	case <-c.closed:
	case <-time.After(failureWait):
	}
	return 0, err
}

// Close is part of [net.Conn].
func (c *conn) Close() error { return c.end() }

// LocalAddr is part of [net.Conn].
func (c *conn) LocalAddr() net.Addr { return address("") }

// RemoteAddr is part of [net.Conn].
func (c *conn) RemoteAddr() net.Addr { return address("localhost:" + c.port) }

// SetDeadline is part of [net.Conn]. It has no effect: the HTTP client has timers of its own.
func (c *conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline is part of [net.Conn], without an effect.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is part of [net.Conn], without an effect.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// address is that of an end of a connection.
type address string

// Network is part of [net.Addr].
func (address) Network() string { return "tcp" }

func (a address) String() string { return string(a) }
