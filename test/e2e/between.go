//go:build linux

package e2e

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// between is a reverse proxy in front of an API server, which a test can make fail. Its clients authenticate with tokens.
type between struct {
	host    *netns.Host
	forward *httputil.ReverseProxy
	// expired counts answers with which the API server refused a watch from a resource version that it no longer has.
	expired atomic.Int32

	mu          sync.Mutex
	server      *http.Server
	connections map[net.Conn]struct{}
	certificate *tls.Certificate
	// before is called for each request that is forwarded, unless it answers itself and returns false.
	before func(http.ResponseWriter, *http.Request) bool
}

const (
	betweenAddress = "127.0.0.1:7443"
	betweenURL     = "https://" + betweenAddress
)

// newBetween returns a reverse proxy on the API server's host, which does not run yet.
func newBetween(c *Cluster) (*between, error) {
	config := c.Config("nobody")
	config.CertFile, config.KeyFile = "", "" // the client's token is forwarded
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(apiURL)
	if err != nil {
		return nil, err
	}
	b := &between{host: c.Host, connections: map[net.Conn]struct{}{}}
	b.forward = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(r *http.Response) error {
			r.Body = &searched{ReadCloser: r.Body, found: func() { b.expired.Add(1) }}
			return nil
		},
	}
	return b, b.certify(c.path("server.crt"), c.path("server.key"))
}

// searched is a body in which the reason of 410 Gone is looked for.
type searched struct {
	io.ReadCloser
	found func()
}

func (s *searched) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte("too old resource version")) {
		s.found()
	}
	return n, err
}

// certify sets the certificate for new connections.
func (b *between) certify(certFile, keyFile string) error {
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.certificate = &certificate
	return err
}

// behave sets what happens before a request is forwarded; nil is nothing.
func (b *between) behave(before func(http.ResponseWriter, *http.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = before
}

// ServeHTTP implements http.Handler.
func (b *between) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	if before != nil && !before(w, r) {
		return
	}
	b.forward.ServeHTTP(w, r)
}

// start listens.
func (b *between) start() error {
	listener, err := b.host.Listen("tcp", betweenAddress)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: b, ErrorLog: log.New(io.Discard, "", 0), ConnState: b.follow, TLSConfig: &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.certificate, nil
		},
	}}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.server = server
	go func() { _ = server.ServeTLS(listener, "", "") }() // until stop
	return nil
}

// stop closes the listener and all connections: new ones are refused.
func (b *between) stop() error {
	b.mu.Lock()
	server := b.server
	b.mu.Unlock()
	if err := server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// follow implements http.Server's ConnState.
func (b *between) follow(c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.connections[c] = struct{}{}; state == http.StateClosed || state == http.StateHijacked {
		delete(b.connections, c)
	}
}

// hangUp closes all connections. New ones are accepted.
func (b *between) hangUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.connections {
		c.Close()
	}
}
