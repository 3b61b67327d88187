package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// fixed is a listener whose clients have the addresses that a test wants.
type fixed struct {
	net.Listener
	clients chan net.Conn
}

func (d *fixed) Accept() (net.Conn, error) { return <-d.clients, nil }

// client is one end of a connection.
type client struct {
	net.Conn
	from string
}

func (*client) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 254), Port: 10256} }

func (c *client) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", c.from)
	if err != nil {
		panic(err)
	}
	return addr
}

// TestLimit accepts clients in their order, and checks which are left.
func TestLimit(t *testing.T) {
	const most = 4
	for _, test := range []struct {
		name string
		// clients are their addresses. After a client with an address that ends in a port below 100 was accepted it is idle.
		clients, left []string
	}{
		{"room for all", []string{"10.0.0.1:100", "10.0.0.1:101", "10.0.0.1:102", "10.0.0.1:103"}, []string{"10.0.0.1:100", "10.0.0.1:101", "10.0.0.1:102", "10.0.0.1:103"}},
		{"one source", []string{"10.0.0.1:100", "10.0.0.1:101", "10.0.0.1:102", "10.0.0.1:103", "10.0.0.1:104", "10.0.0.1:105"},
			[]string{"10.0.0.1:102", "10.0.0.1:103", "10.0.0.1:104", "10.0.0.1:105"}},
		{"one has many", []string{"10.0.0.9:100", "10.0.0.1:100", "10.0.0.1:101", "10.0.0.1:102", "10.0.0.1:103", "10.0.0.2:100"},
			[]string{"10.0.0.9:100", "10.0.0.1:102", "10.0.0.1:103", "10.0.0.2:100"}},
		{"each has one", []string{"10.0.0.1:100", "10.0.0.2:100", "10.0.0.3:100", "10.0.0.4:100", "10.0.0.5:100"},
			[]string{"10.0.0.2:100", "10.0.0.3:100", "10.0.0.4:100", "10.0.0.5:100"}},
		{"each has one, and one is idle", []string{"10.0.0.1:100", "10.0.0.2:100", "10.0.0.3:1", "10.0.0.4:100", "10.0.0.5:100"},
			[]string{"10.0.0.1:100", "10.0.0.2:100", "10.0.0.4:100", "10.0.0.5:100"}},
		{"the idle one of many", []string{"10.0.0.1:100", "10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:100", "10.0.0.4:100"},
			[]string{"10.0.0.1:100", "10.0.0.2:2", "10.0.0.3:100", "10.0.0.4:100"}},
		{"addresses of one IPv6 network", []string{"[2001:db8::9]:100", "[2001:db8:0:1::1]:100", "[2001:db8:0:1::2]:100", "[2001:db8:0:1::3]:100", "[2001:db8:0:1::4]:100"},
			[]string{"[2001:db8::9]:100", "[2001:db8:0:1::2]:100", "[2001:db8:0:1::3]:100", "[2001:db8:0:1::4]:100"}},
		{"IPv4 by IPv6", []string{"10.0.0.9:100", "10.0.0.1:100", "[::ffff:10.0.0.1]:101", "10.0.0.2:100", "10.0.0.3:100"},
			[]string{"10.0.0.9:100", "[::ffff:10.0.0.1]:101", "10.0.0.2:100", "10.0.0.3:100"}},
		{"users of this machine", []string{"127.0.0.1:1001", "10.0.0.254:2001", "127.0.0.1:2002", "127.0.0.2:2003", "127.0.0.3:2004", "127.0.0.1:1002"},
			[]string{"127.0.0.1:1001", "127.0.0.2:2003", "127.0.0.3:2004", "127.0.0.1:1002"}},
		{"clients of this machine that are gone", []string{"127.0.0.1:201", "127.0.0.1:202", "127.0.0.1:203", "127.0.0.1:1001", "127.0.0.1:204"},
			[]string{"127.0.0.1:202", "127.0.0.1:203", "127.0.0.1:1001", "127.0.0.1:204"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			closed := 0
			limit := &Limit{Most: most, Closed: func() { closed++ }, User: func(client, server netip.AddrPort) (uint32, error) {
				if server != netip.MustParseAddrPort("10.0.0.254:10256") {
					t.Errorf("asked for the user of a connection from %s to %s", client, server)
				}
				if client.Port() < 300 {
					return 0, errors.New("closed")
				}
				return uint32(client.Port() / 1000), nil
			}}
			clients := make(chan net.Conn, 1)
			listener := limit.Listener(&fixed{clients: clients})
			var all []*connection
			for _, from := range test.clients {
				here, _ := net.Pipe()
				clients <- &client{here, from}
				accepted, err := listener.Accept()
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, accepted.(*connection))
				observe(accepted, http.StateActive)
				if addr := accepted.RemoteAddr().(*net.TCPAddr); addr.Port < 100 {
					observe(accepted, http.StateIdle)
				}
			}
			var left []string
			for _, c := range all {
				if slices.Contains(limit.open.parts, &c.part) {
					left = append(left, c.Conn.(*client).from)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				_ = c.Close() // again, as a server does
			}
			if !slices.Equal(left, test.left) || closed != len(test.clients)-len(left) {
				t.Errorf("left are %v, want %v; %d were closed", left, test.left, closed)
			}
			if len(limit.open.parts) != 0 {
				t.Errorf("closed connections count: %d", len(limit.open.parts))
			}
		})
	}
}

// TestLimitClosesConnections holds idle connections to two servers that share a limit: the oldest ones are closed, and new requests to
// both are answered.
func TestLimitClosesConnections(t *testing.T) {
	const most, held = 3, 20
	var closed atomic.Int32
	limit := &Limit{Most: most, SendBuffer: pageBuffer, Closed: func() { closed.Add(1) }}
	ctx, cancel := context.WithCancel(t.Context())
	var addresses []string
	ended := make(chan error, 2)
	for range cap(ended) {
		free := taken(t)
		addresses = append(addresses, free.Addr().String())
		_ = free.Close()
		server := hello(addresses[len(addresses)-1])
		server.Limit = limit
		go func() { ended <- server.Run(ctx) }()
		get(t, addresses[len(addresses)-1])
	}
	var connections []net.Conn
	for i := range held {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addresses[i%2])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		connections = append(connections, connection)
		if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Read(make([]byte, 1)); err != nil {
			t.Fatalf("connection %d was not answered: %v", i, err)
		}
		for busy := true; busy; time.Sleep(time.Millisecond) { // one that is idle would be closed before an older one that is not yet
			limit.open.mu.Lock()
			busy = slices.ContainsFunc(limit.open.parts, func(p *part) bool { return !p.idle })
			limit.open.mu.Unlock()
		}
	}
	for _, connection := range connections[:held-most] {
		if _, err := io.Copy(io.Discard, connection); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Logf("closed: %v", err)
		}
	}
	if n := closed.Load(); n < held-most {
		t.Errorf("%d connections were closed to make room, want %d at least", n, held-most)
	}
	cancel()
	for range addresses {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		limit.open.mu.Lock()
		left := len(limit.open.parts)
		limit.open.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d connections count although their servers have ended", left)
		}
	}
}

// TestLimits checks that the descriptors that the rules need stay free, whatever their number is.
func TestLimits(t *testing.T) {
	for _, descriptors := range []uint64{0, 16, 64, 256, 1024, 4096, 1 << 20, ^uint64(0)} {
		t.Run(fmt.Sprint(descriptors), func(t *testing.T) {
			l := NewLimits(descriptors, nil, nil)
			connections := uint64(l.Healthz.Most + l.HealthCheckPorts.Most + l.Metrics.Most + 2*l.Forwarded)
			t.Logf("healthz %d, health check node ports %d, metrics %d, forwarded %d, listeners %d",
				l.Healthz.Most, l.HealthCheckPorts.Most, l.Metrics.Most, l.Forwarded, l.Listeners)
			if descriptors >= 16 && connections > descriptors*5/16 || uint64(l.Listeners) > descriptors/2 {
				t.Errorf("%d for connections and %d for listeners", connections, l.Listeners)
			}
			for _, limit := range []*Limit{l.Healthz, l.HealthCheckPorts, l.Metrics} {
				if limit.Most < 1 || limit.Most > 256 {
					t.Errorf("a server has %d connections", limit.Most)
				}
			}
		})
	}
}
