//go:build linux

package cluster

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// apiPort is the port of the kubelet's API.
const apiPort = 10250

// forwards starts the part of the kubelet's API that forwards ports of Pods in the host's network, which the API server asks. The caller
// closes the server.
func (k *kubelet) forwards() (*httptest.Server, error) {
	listener, err := k.node.Listen("tcp", net.JoinHostPort(k.node.IPv4.String(), strconv.Itoa(apiPort)))
	if err != nil {
		return nil, err
	}
	server := &httptest.Server{Listener: listener, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Config: &http.Server{Handler: http.HandlerFunc(k.forward)}} //nolint:gosec // the only client is the API server
	server.StartTLS()
	return server, nil
}

// forward answers a request of the API server, and carries streams until it ends.
func (k *kubelet) forward(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	streams := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			k.carry(r, stream)
		}()
		return nil
	})
	if streams != nil {
		<-streams.CloseChan()
	}
}

// carry connects one stream to a port of the node. A port that does not answer is an end without data.
func (k *kubelet) carry(r *http.Request, stream httpstream.Stream) {
	defer stream.Close()
	if stream.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
		return
	}
	port, err := k.node.Dial(r.Context(), "tcp", net.JoinHostPort("127.0.0.1", stream.Headers().Get(corev1.PortHeader)))
	if err != nil {
		return
	}
	defer port.Close()
	go func() {
		_, _ = io.Copy(port, stream)
		_ = port.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(stream, port)
}
