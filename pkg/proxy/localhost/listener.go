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

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// dialTimeout is how long an endpoint may take to accept a connection.
	dialTimeout = 5 * time.Second
	// acceptPause is the pause after a failed accept, usually caused by a lack of file descriptors.
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

	// For session affinity all clients are the same one: they have the same address.
	mu      sync.Mutex
	pinned  netip.AddrPort
	pinnedT time.Time
}

// listen returns a listener that accepts connections.
func listen(ctx context.Context, socket net.Listener, route *plan.Route, slots chan struct{}) *listener {
	l := &listener{socket: socket, slots: slots}
	l.route.Store(route)
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.ended.Go(l.accept)
	return l
}

// close closes the socket and all connections, and waits for them.
func (l *listener) close() {
	l.cancel()
	_ = l.socket.Close()
	l.ended.Wait()
}

func (l *listener) accept() {
	failing := logonce.Condition{Again: logonce.Reminder}
	for {
		connection, err := l.socket.Accept()
		switch {
		case errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil:
			if err == nil {
				abort(connection)
			}
			return
		case err != nil:
			if failing.Changed(err.Error()) {
				klog.FromContext(l.ctx).Error(err, "Failed to accept a connection to a node port on localhost", "port", l.route.Load().Name)
			}
			select {
			case <-l.ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		failing.Ended()
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

// forward forwards one connection. If the endpoint does not accept it, the client is reset: another endpoint would
// hide the failure, and the client decides whether to retry.
func (l *listener) forward(client net.Conn) {
	// With the sysctl route_localnet other machines can send to loopback addresses.
	if from, ok := client.RemoteAddr().(*net.TCPAddr); !ok || !from.IP.IsLoopback() {
		abort(client)
		return
	}
	route := l.route.Load()
	endpoint := l.pick(route, time.Now())
	server, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(l.ctx, "tcp", endpoint.String())
	if err != nil {
		klog.FromContext(l.ctx).V(2).Info("Failed to connect a localhost client to an endpoint", "port", route.Name, "endpoint", endpoint, "reason", err.Error())
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

// pick returns a random endpoint, by the weights, or the one of the previous connections with session affinity.
func (l *listener) pick(route *plan.Route, now time.Time) netip.AddrPort {
	endpoints, slots := route.Pool.Endpoints, route.Pool.Slots()
	chosen := slots[rand.IntN(len(slots))]
	if route.Affinity == nil {
		return chosen
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := slices.BinarySearchFunc(endpoints, l.pinned, netip.AddrPort.Compare); there && now.Sub(l.pinnedT) < route.Affinity.Timeout {
		chosen = l.pinned
	}
	l.pinned, l.pinnedT = chosen, now
	return chosen
}

// pass copies until from is closed for writing, and then closes to for writing; the other direction continues. After
// an error, such as a reset, it resets both.
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
