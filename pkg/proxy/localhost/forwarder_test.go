package localhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// patience is the limit for each wait.
const patience = 20 * time.Second

// fixture is a running Forwarder on this machine's loopback addresses.
type fixture struct {
	*testing.T
	*Forwarder
	snapshot *cluster.Snapshot
	options  *plan.Options
	plan     *plan.Plan
	history  proxy.History

	mu        sync.Mutex
	listeners map[cluster.Family]int
	failures  int
	changed   chan struct{}
}

func start(t *testing.T, families ...cluster.Family) *fixture {
	t.Helper()
	f := &fixture{T: t, options: &plan.Options{}, listeners: map[cluster.Family]int{}, changed: make(chan struct{}, 1),
		snapshot: &cluster.Snapshot{Node: &cluster.Node{}}}
	note := func() {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	f.Forwarder = New(Config{Families: families, MaxConnections: 100,
		Listening: func(family cluster.Family, n int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.listeners[family] = n
			note()
		},
		ListenFailed: func(cluster.Family) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.failures++
			note()
		}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Forwarder.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

// freePort returns an unused port below the kernel's range of ephemeral ports.
func freePort(t *testing.T, host string) uint16 {
	t.Helper()
	for range 1000 {
		port := uint16(20000 + rand.IntN(10000))
		socket, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
		if err == nil {
			socket.Close()
			return port
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Skipf("skipped: this machine has no %s: %v", host, err)
		}
	}
	t.Fatalf("no port of %s is free", host)
	return 0
}

// service returns default/web with a node port and these endpoints.
func service(port uint16, endpoints ...netip.AddrPort) *cluster.Service {
	s := &cluster.Service{Name: cluster.ServiceName{Namespace: "default", Name: "web"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::10")},
		Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80, NodePort: port}, {Name: "udp", Protocol: cluster.UDP, Port: 80, NodePort: port + 1}}}
	for i, e := range endpoints {
		s.Slices = append(s.Slices, &cluster.EndpointSlice{Name: fmt.Sprint(i), Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: e.Port()}},
			Endpoints: []cluster.Endpoint{{Addr: e.Addr(), Conditions: cluster.Ready | cluster.Serving}}})
	}
	return s
}

// sync calls Synced with a plan for this Service; nil is none.
func (f *fixture) sync(s *cluster.Service) {
	services := cluster.Map[cluster.ServiceName, *cluster.Service]{}
	if s != nil {
		services = services.Set(s.Name, s)
	}
	f.snapshot = &cluster.Snapshot{Node: f.snapshot.Node, Services: services}
	f.plan = plan.Compute(f.snapshot, f.options, f.plan)
	f.Synced(f.history.Add(&proxy.Sync{After: f.snapshot, Plan: f.plan}))
}

// wait waits for these numbers of listeners and failures.
func (f *fixture) wait(family cluster.Family, listeners, failures int) {
	f.Helper()
	limit := time.After(patience)
	for {
		f.mu.Lock()
		have, failed := f.listeners[family], f.failures
		f.mu.Unlock()
		if have == listeners && failed == failures {
			return
		}
		select {
		case <-f.changed:
		case <-limit:
			f.Fatalf("%d listeners and %d failures, want %d and %d", have, failed, listeners, failures)
		}
	}
}

// echo is an endpoint that writes its name, then echoes lines until the client closes its side, and then writes bye.
func echo(t *testing.T, name, address string) netip.AddrPort {
	t.Helper()
	socket, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("skipped: this machine has no %s: %v", address, err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		for {
			connection, err := socket.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				fmt.Fprintln(connection, name)
				lines := bufio.NewScanner(connection)
				for lines.Scan() {
					fmt.Fprintln(connection, lines.Text())
				}
				fmt.Fprintln(connection, "bye")
			}()
		}
	}()
	return netip.MustParseAddrPort(socket.Addr().String())
}

// client is a connection to a node port.
type client struct {
	*testing.T
	*net.TCPConn
	lines *bufio.Reader
}

func dial(t *testing.T, host string, port uint16) *client {
	t.Helper()
	connection, err := net.DialTimeout("tcp", net.JoinHostPort(host, fmt.Sprint(port)), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(patience))
	return &client{t, connection.(*net.TCPConn), bufio.NewReader(connection)}
}

func (c *client) want(line string) {
	c.Helper()
	if got, err := c.lines.ReadString('\n'); err != nil || got != line+"\n" {
		c.Fatalf("got %q, %v; want %q", got, err, line)
	}
}

func (c *client) send(line string) {
	c.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		c.Fatal(err)
	}
}

// TestForwards checks forwarding in both families and directions, and after the client has closed its side.
func TestForwards(t *testing.T) {
	for family, address := range map[cluster.Family]string{cluster.IPv4: "127.0.0.1:0", cluster.IPv6: "[::1]:0"} {
		t.Run(family.String(), func(t *testing.T) {
			host, _, _ := net.SplitHostPort(address)
			port := freePort(t, host)
			f := start(t, family)
			f.sync(service(port, echo(t, "a", address)))
			f.wait(family, 1, 0)
			c := dial(t, host, port)
			c.want("a")
			c.send("hello")
			c.want("hello")
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			c.want("bye")
			if _, err := c.lines.ReadByte(); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}

// TestWakesForNodePorts checks that Synced wakes Run only if a TCP node port has changed.
func TestWakesForNodePorts(t *testing.T) {
	f := &fixture{T: t, Forwarder: New(Config{Families: []cluster.Family{cluster.IPv4}, MaxConnections: 100}), options: &plan.Options{},
		snapshot: &cluster.Snapshot{Node: &cluster.Node{}}}
	other := service(0, netip.MustParseAddrPort("192.0.2.1:80"))
	other.Ports[1].NodePort = 30081 // UDP
	f.sync(other)
	if len(f.wake) != 0 {
		t.Error("a change of other ports wakes Run")
	}
	f.sync(service(30080, netip.MustParseAddrPort("192.0.2.1:80")))
	if len(f.wake) != 1 {
		t.Error("a new node port does not wake Run")
	}
}

// TestEndpointsChange checks that new connections use the new endpoints and old ones stay, and that the listener and its
// connections are closed when there is no endpoint.
func TestEndpointsChange(t *testing.T) {
	port := freePort(t, "127.0.0.1")
	a, b := echo(t, "a", "127.0.0.1:0"), echo(t, "b", "127.0.0.1:0")
	f := start(t, cluster.IPv4)
	f.sync(service(port, a))
	f.wait(cluster.IPv4, 1, 0)
	old := dial(t, "127.0.0.1", port)
	old.want("a")
	f.sync(service(port, b))
	for limit := time.Now().Add(patience); ; {
		c := dial(t, "127.0.0.1", port)
		if name, _ := c.lines.ReadString('\n'); name == "b\n" {
			break
		} else if time.Now().After(limit) {
			t.Fatalf("still %q", name)
		}
	}
	old.send("still here")
	old.want("still here")
	f.sync(service(port))
	f.wait(cluster.IPv4, 0, 0)
	if _, err := old.lines.ReadString('\n'); err == nil || err == io.EOF {
		t.Errorf("the connection was not cut: %v", err)
	}
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		c.Close()
		t.Error("the port is still open")
	}
	f.sync(service(port, b))
	f.wait(cluster.IPv4, 1, 0)
	dial(t, "127.0.0.1", port).want("b")
	f.sync(nil)
	f.wait(cluster.IPv4, 0, 0)
}

// TestPolicyLocal checks that only this node's endpoints are used.
func TestPolicyLocal(t *testing.T) {
	port := freePort(t, "127.0.0.1")
	f := start(t, cluster.IPv4)
	s := service(port, echo(t, "a", "127.0.0.1:0"), echo(t, "b", "127.0.0.1:0"))
	s.ExternalPolicy = cluster.PolicyLocal
	s.Slices[1].Endpoints[0].Conditions |= cluster.Local
	f.sync(s)
	f.wait(cluster.IPv4, 1, 0)
	for range 8 {
		dial(t, "127.0.0.1", port).want("b")
	}
}

// TestDeadEndpoint checks that the client is reset if the endpoint refuses the connection.
func TestDeadEndpoint(t *testing.T) {
	port := freePort(t, "127.0.0.1")
	const unused = 1 // tcpmux, which no machine serves
	f := start(t, cluster.IPv4)
	f.sync(service(port, netip.AddrPortFrom(loopback(cluster.IPv4), unused)))
	f.wait(cluster.IPv4, 1, 0)
	connection, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), patience)
	if err == nil { // otherwise the reset came during the dial
		defer connection.Close()
		_ = connection.SetDeadline(time.Now().Add(patience))
		_, err = connection.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

// TestPortTaken checks that a port in use is reported, and that other ports are served.
func TestPortTaken(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	port := netip.MustParseAddrPort(socket.Addr().String()).Port()
	free := freePort(t, "127.0.0.1")
	f := start(t, cluster.IPv4)
	endpoint := echo(t, "a", "127.0.0.1:0")
	s := service(port, endpoint)
	s.Ports = append(s.Ports, cluster.ServicePort{Name: "free", Protocol: cluster.TCP, Port: 81, NodePort: free})
	s.Slices[0].Ports = append(s.Slices[0].Ports, cluster.EndpointPort{Name: "free", Protocol: cluster.TCP, Port: endpoint.Port()})
	f.sync(s)
	f.wait(cluster.IPv4, 1, 1)
	dial(t, "127.0.0.1", free).want("a")
}

// brokenSocket fails to accept: this is what a lack of file descriptors looks like.
type brokenSocket struct{ net.Listener }

func (brokenSocket) Accept() (net.Conn, error) { return nil, unix.EMFILE }
func (brokenSocket) Close() error              { return nil }

// TestFailingAcceptIsLoggedOnce lets a listener fail ten times a second for a minute.
func TestFailingAcceptIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines atomic.Int32
		logger := funcr.New(func(_, _ string) { lines.Add(1) }, funcr.Options{})
		l := listen(klog.NewContext(t.Context(), logger), brokenSocket{}, &plan.Route{}, make(chan struct{}, 1))
		time.Sleep(time.Minute)
		l.close()
		if n := lines.Load(); n != 1 {
			t.Errorf("logged %d lines in a minute, want one", n)
		}
	})
}

// TestPick checks that affinity keeps all clients at one endpoint until the timeout or until the endpoint is gone.
func TestPick(t *testing.T) {
	pool := func(texts ...string) *plan.Pool {
		p := &plan.Pool{}
		for _, text := range texts {
			p.Endpoints = append(p.Endpoints, netip.MustParseAddrPort(text))
		}
		return p
	}
	now := time.Unix(1_000_000, 0)
	all := pool("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")
	seen := map[netip.AddrPort]int{}
	l := &listener{}
	for range 400 {
		seen[l.pick(&plan.Route{Pool: all}, now)]++
	}
	if len(seen) != 4 {
		t.Errorf("without affinity: %v", seen)
	}
	sticky := &plan.Route{Pool: all, Affinity: &plan.Affinity{Timeout: time.Minute}}
	first := l.pick(sticky, now)
	for range 100 {
		now = now.Add(59 * time.Second)
		if got := l.pick(sticky, now); got != first {
			t.Fatalf("moved from %s to %s", first, got)
		}
	}
	expired := map[netip.AddrPort]int{}
	for range 400 {
		now = now.Add(time.Minute)
		expired[l.pick(sticky, now)]++
	}
	if len(expired) != 4 {
		t.Errorf("after each timeout: %v", expired)
	}
	only := &plan.Route{Pool: pool("10.0.0.9:80"), Affinity: &plan.Affinity{Timeout: time.Minute}}
	if got := l.pick(only, now); got != only.Pool.Endpoints[0] {
		t.Errorf("clients stay with an endpoint that is gone: %s", got)
	}
}

// TestBound checks that connections above the limit wait until another one is closed.
func TestBound(t *testing.T) {
	port := freePort(t, "127.0.0.1")
	f := start(t, cluster.IPv4)
	f.slots = make(chan struct{}, 2) // not used by Run yet
	f.sync(service(port, echo(t, "a", "127.0.0.1:0")))
	f.wait(cluster.IPv4, 1, 0)
	one, two := dial(t, "127.0.0.1", port), dial(t, "127.0.0.1", port)
	one.want("a")
	two.want("a")
	three := dial(t, "127.0.0.1", port)
	if len(f.slots) != 2 {
		t.Errorf("%d open connections", len(f.slots))
	}
	one.Close()
	three.want("a")
}
