package canary

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// listeners are the endpoints of the canary, which send a token to each client: who else answers does not know it.
type listeners struct {
	all   []net.Listener
	token string
}

// listen listens on a free port of each family's loopback address, which only this node reaches.
func listen(families []cluster.Family) (l listeners, err error) {
	l.token = rand.Text()
	for _, family := range families {
		network, at := "tcp4", "127.0.0.1:0"
		if family == cluster.IPv6 {
			network, at = "tcp6", "[::1]:0"
		}
		listener, err := net.Listen(network, at)
		if err != nil {
			l.close()
			return l, fmt.Errorf("listen for the canary's connections: %w", err)
		}
		l.all = append(l.all, listener)
	}
	return l, nil
}

// Endpoints are the addresses on which it listens.
func (c *Canary) Endpoints() (all []netip.AddrPort) {
	for _, listener := range c.listeners.all {
		all = append(all, listener.Addr().(*net.TCPAddr).AddrPort())
	}
	return all
}

func (l *listeners) close() {
	for _, listener := range l.all {
		_ = listener.Close()
	}
}

// serve answers connections until the listeners are closed.
func (l *listeners) serve() {
	for _, listener := range l.all {
		go func() {
			for {
				conn, err := listener.Accept()
				switch {
				case errors.Is(err, net.ErrClosed):
					return
				case err != nil: // there are too many descriptors, for example
					time.Sleep(period)
				default:
					_, _ = io.WriteString(conn, l.token) // the client notices
					_ = conn.Close()
				}
			}
		}()
	}
}

// connect connects to routes, to all at the same time, and returns the errors of those that fail.
func (c *Canary) connect(ctx context.Context, routes map[cluster.Family]*plan.Route, patience time.Duration) map[cluster.Family]error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	failed := map[cluster.Family]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for family, route := range routes {
		wg.Go(func() {
			if err := c.listeners.ask(ctx, address(route)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[family] = err
			}
		})
	}
	wg.Wait()
	return failed
}

// errForeign is the error of a connection that does not reach the canary's listener.
var errForeign = errors.New("another program answers")

// ask connects to an address until ctx ends, and expects the token. The connection is reset at its end: the kernel then forgets it after
// 10 seconds.
func (l *listeners) ask(ctx context.Context, to string) error {
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.SetDeadline(deadline)); err != nil {
		return err
	}
	answer := make([]byte, len(l.token))
	if _, err := io.ReadFull(conn, answer); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if string(answer) != l.token {
		return errForeign
	}
	return nil
}

// address is what is connected to.
func address(route *plan.Route) string {
	return netip.AddrPortFrom(route.Frontend.Addr, route.Frontend.Port).String()
}

// unrouted returns why the kernel sends nothing to a route's address; nil if it does. A socket of UDP that is connected has sent nothing yet.
func unrouted(route *plan.Route) error {
	conn, err := net.Dial("udp", address(route))
	if err != nil {
		return err
	}
	return conn.Close()
}

// how describes how a connection failed, without ports that differ each time.
func how(err error) string {
	var timeout net.Error
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer"
	default:
		return err.Error()
	}
}
