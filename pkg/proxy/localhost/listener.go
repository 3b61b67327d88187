package localhost

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// dialTimeout is how long an endpoint may take to accept a connection.
	dialTimeout = 5 * time.Second
	// acceptPause follows an accept that failed, mostly for want of file descriptors.
	acceptPause = 100 * time.Millisecond
)

// listener serves one node port.
type listener struct {
	socket net.Listener
	route  atomic.Pointer[plan.Route]
	slots  chan struct{}
	// ctx ends when the listener is closed.
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup

	// All clients here are one to session affinity: their address is the same.
	mu      sync.Mutex
	pinned  netip.AddrPort
	pinnedT time.Time
}

// listen begins to accept connections.
func listen(ctx context.Context, socket net.Listener, route *plan.Route, slots chan struct{}) *listener {
	l := &listener{socket: socket, slots: slots}
	l.route.Store(route)
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.ended.Go(l.accept)
	return l
}

// close gives the port back and ends the connections.
func (l *listener) close() {
	l.cancel()
	_ = l.socket.Close()
	l.ended.Wait()
}

func (l *listener) accept() {
	for {
		connection, err := l.socket.Accept()
		switch {
		case errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil:
			if err == nil {
				abort(connection)
			}
			return
		case err != nil:
			klog.FromContext(l.ctx).Error(err, "Cannot accept a connection to a node port on localhost", "port", l.route.Load().Name)
			select {
			case <-l.ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		select {
		case l.slots <- struct{}{}:
		case <-l.ctx.Done():
			abort(connection)
			return
		}
		l.ended.Go(func() {
			defer func() { <-l.slots }()
			l.forward(connection)
		})
	}
}

// forward passes one connection on. An endpoint that does not answer ends it: to try another one would hide that it is
// broken, and a client knows best whether to try again.
func (l *listener) forward(client net.Conn) {
	// With the setting route_localnet other machines could send here.
	if from, ok := client.RemoteAddr().(*net.TCPAddr); !ok || !from.IP.IsLoopback() {
		abort(client)
		return
	}
	route := l.route.Load()
	endpoint := l.pick(route, time.Now())
	server, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(l.ctx, "tcp", endpoint.String())
	if err != nil {
		klog.FromContext(l.ctx).V(2).Info("An endpoint takes no connection from localhost", "port", route.Name, "endpoint", endpoint, "reason", err.Error())
		abort(client)
		return
	}
	stop := context.AfterFunc(l.ctx, func() {
		abort(client)
		abort(server)
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pass(server, client) })
	both.Go(func() { pass(client, server) })
	both.Wait()
	_ = client.Close()
	_ = server.Close()
}

// pick chooses an endpoint at random, or the one that the clients stay with.
func (l *listener) pick(route *plan.Route, now time.Time) netip.AddrPort {
	endpoints := route.Pool.Endpoints
	chosen := endpoints[rand.IntN(len(endpoints))]
	if route.Affinity == 0 {
		return chosen
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := slices.BinarySearchFunc(endpoints, l.pinned, netip.AddrPort.Compare); there && now.Sub(l.pinnedT) < route.Affinity {
		chosen = l.pinned
	}
	l.pinned, l.pinnedT = chosen, now
	return chosen
}

// pass copies until from has said all, and then tells to so: the other direction may go on. An error, such as a reset,
// is passed on as a reset.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		abort(to)
		abort(from)
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// abort resets a connection.
func abort(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}
