package health

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
)

// harness is a Services whose sockets listen on free loopback ports, so that no test depends on a particular port. The
// addresses that it is asked to listen on are only names for them.
type harness struct {
	t *testing.T
	*Services
	healthy  atomic.Bool
	events   []proxy.Event
	failing  plan.Observed
	history  proxy.History
	services cluster.Map[cluster.ServiceName, *plan.Service]

	mu     sync.Mutex
	taken  map[string]bool   // addresses in use
	at     map[string]string // actual address by requested address
	opened []string
}

func newHarness(t *testing.T, all bool) *harness {
	t.Helper()
	h := &harness{t: t, taken: map[string]bool{}, at: map[string]string{}}
	h.healthy.Store(true)
	h.Services = NewServices(ServicesConfig{
		Families:     []cluster.Family{cluster.IPv4, cluster.IPv6},
		AllAddresses: func(cluster.Family) bool { return all },
		Healthy:      h.healthy.Load, Recorder: h, Failing: func(found plan.Observed) { h.failing = found },
		Clock: testclock.NewFakeClock(epoch),
		Limit: serve.NewLimits(1024, nil, func(string) {}).HealthCheckPorts, MaxListeners: 4,
	})
	h.open, h.began = h.listenFor, epoch.Add(-serve.Handover) // no process before this one has its ports
	t.Cleanup(h.end)
	return h
}

func (h *harness) Event(e proxy.Event) { h.events = append(h.events, e) }

// released calls a function when it is closed.
type released struct {
	net.Listener
	close func()
}

func (r *released) Close() error {
	r.close()
	return r.Listener.Close()
}

func (h *harness) listenFor(network, address string) (net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := "tcp4"
	if netip.MustParseAddrPort(address).Addr().Is6() {
		want = "tcp6"
	}
	if network != want {
		h.t.Errorf("%s uses network %s, want %s", address, network, want)
	}
	if h.taken[address] {
		return nil, fmt.Errorf("listen tcp %s: %w", address, syscall.EADDRINUSE)
	}
	listener, err := (&net.ListenConfig{}).Listen(h.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h.taken[address], h.at[address] = true, listener.Addr().String()
	h.opened = append(h.opened, address)
	return &released{listener, sync.OnceFunc(func() { h.release(address) })}, nil
}

// take marks an address as used by another process.
func (h *harness) take(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken[address] = true
}

func (h *harness) release(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.taken, address)
	delete(h.at, address)
}

// sync calls Synced with these Services and node port addresses.
func (h *harness) sync(addrs []netip.Addr) {
	h.Synced(h.history.Add(&proxy.Sync{Plan: &plan.Plan{Services: h.services, Node: &plan.Node{NodePortAddrs: addrs}}}))
}

// set creates or changes an IPv4 Service with a health check; port 0 removes the check.
func (h *harness) set(name string, port uint16, endpoints int) {
	h.setFamilies(name, port, map[cluster.Family]int{cluster.IPv4: endpoints})
}

func (h *harness) setFamilies(name string, port uint16, endpoints map[cluster.Family]int) {
	key := cluster.ServiceName{Namespace: "ns", Name: name}
	service := &plan.Service{Name: key, UID: name + "-1"}
	if port != 0 {
		service.HealthCheck = &plan.HealthCheck{Port: port, LocalEndpoints: endpoints}
	}
	h.services = h.services.Set(key, service)
}

func (h *harness) remove(name string) {
	h.services = h.services.Delete(cluster.ServiceName{Namespace: "ns", Name: name})
}

// seen is a response as a load balancer sees it.
type seen struct {
	Code    int
	Weight  string
	Service string
	Local   int
	Healthy bool
}

// ask sends a request to a requested address; the result is zero if nothing listens there.
func (h *harness) ask(address string) seen {
	h.t.Helper()
	h.mu.Lock()
	where, ok := h.at[address]
	h.mu.Unlock()
	if !ok {
		return seen{}
	}
	response, err := http.Get("http://" + where + "/any/path")
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	var body struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		h.t.Fatal(err)
	}
	return seen{
		response.StatusCode, response.Header.Get("X-Load-Balancing-Endpoint-Weight"),
		body.Service.Namespace + "/" + body.Service.Name, body.LocalEndpoints, body.ServiceProxyHealthy,
	}
}

func (h *harness) expect(address string, want seen) {
	h.t.Helper()
	if diff := cmp.Diff(want, h.ask(address)); diff != "" {
		h.t.Errorf("response of %s (-want +got):\n%s", address, diff)
	}
}

func good(service string, endpoints int) seen {
	return seen{http.StatusOK, strconv.Itoa(endpoints), "ns/" + service, endpoints, true}
}

func bad(service string, endpoints int, healthy bool) seen {
	return seen{http.StatusServiceUnavailable, strconv.Itoa(endpoints), "ns/" + service, endpoints, healthy}
}

func TestServices(t *testing.T) {
	h := newHarness(t, true)
	h.set("a", 30001, 2)
	h.set("b", 30002, 0)
	h.set("c", 0, 0)
	h.sync(nil)
	h.expect("0.0.0.0:30001", good("a", 2))
	h.expect("0.0.0.0:30002", bad("b", 0, true))

	h.healthy.Store(false)
	h.expect("0.0.0.0:30001", bad("a", 2, false))
	h.healthy.Store(true)

	h.set("a", 30001, 0)
	h.set("b", 30002, 1)
	h.sync(nil)
	h.expect("0.0.0.0:30001", bad("a", 0, true))
	h.expect("0.0.0.0:30002", good("b", 1))
	if len(h.opened) != 2 {
		t.Errorf("a change of endpoints reopened ports: %v", h.opened)
	}

	h.set("a", 30003, 4)
	h.remove("b")
	h.sync(nil)
	h.expect("0.0.0.0:30001", seen{})
	h.expect("0.0.0.0:30002", seen{})
	h.expect("0.0.0.0:30003", good("a", 4))

	h.set("a", 0, 0)
	h.set("c", 30003, 5) // the port moves to another Service in one update
	h.sync(nil)
	h.expect("0.0.0.0:30003", good("c", 5))

	h.end()
	h.expect("0.0.0.0:30003", seen{})
	h.set("d", 30004, 1)
	h.sync(nil)
	h.expect("0.0.0.0:30004", seen{})
	if len(h.events) != 0 {
		t.Errorf("unexpected events: %v", h.events)
	}
}

// TestServicesRefused has the kernel refuse ports of a Service: it counts what is in force.
func TestServicesRefused(t *testing.T) {
	h := newHarness(t, true)
	name := cluster.ServiceName{Namespace: "ns", Name: "a"}
	routes := []*plan.Route{
		{Service: name, Name: "ns/a:http", Frontend: plan.Frontend{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: cluster.TCP, Port: 80}},
		{Service: name, Name: "ns/a:dns", Frontend: plan.Frontend{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: cluster.UDP, Port: 53}},
		{Service: name, Name: "ns/a:http", Frontend: plan.Frontend{Addr: netip.MustParseAddr("fd00::1"), Protocol: cluster.TCP, Port: 80}},
	}
	http, dns := routes[0].Of().String(), routes[1].Of().String()
	sync := func(endpoints int, refused ...backend.Refusal) {
		h.services = h.services.Set(name, &plan.Service{Name: name, Routes: routes,
			HealthCheck: &plan.HealthCheck{Port: 30001, LocalEndpoints: map[cluster.Family]int{cluster.IPv4: endpoints, cluster.IPv6: endpoints}}})
		h.Synced(h.history.Add(&proxy.Sync{Plan: &plan.Plan{Services: h.services, Node: &plan.Node{}},
			Results: []backend.Result{{Family: cluster.IPv4, Refused: refused}, {Family: cluster.IPv6}}}))
	}
	refusal := func(port string, kept bool) backend.Refusal {
		return backend.Refusal{Family: cluster.IPv4, Service: name, Port: port, Kept: kept}
	}
	all := []backend.Refusal{refusal(http, true), refusal(dns, true)}
	for _, test := range []struct {
		when      string
		endpoints int
		refused   []backend.Refusal
		want      seen
	}{
		{"nothing is refused", 2, nil, good("a", 2)},
		{"one port has no rules", 2, []backend.Refusal{refusal(dns, false)}, good("a", 2)},
		{"no port has rules", 2, []backend.Refusal{refusal(dns, false), refusal(http, false)}, bad("a", 0, true)},
		{"all is well again", 2, nil, good("a", 2)},
		{"the rules of two endpoints are kept, and one of these is left", 1, all, good("a", 1)},
		{"new endpoints are not in the rules that are kept", 3, all, good("a", 1)},
		{"one port is accepted", 3, []backend.Refusal{refusal(http, true)}, good("a", 3)},
		{"the endpoints in the rules that are kept are gone", 0, all, bad("a", 0, true)},
		{"one port is accepted again", 2, []backend.Refusal{refusal(http, true)}, good("a", 2)},
		{"and the new ones are programmed", 3, nil, good("a", 3)},
	} {
		t.Log(test.when)
		sync(test.endpoints, test.refused...)
		h.expect("0.0.0.0:30001", test.want)
		if test.endpoints > 0 {
			h.expect("[::]:30001", good("a", test.endpoints))
		}
	}
}

func TestServicesPortTaken(t *testing.T) {
	h := newHarness(t, true)
	h.began = epoch
	h.take("0.0.0.0:30001")
	h.set("a", 30001, 1)
	h.set("b", 30002, 1)
	h.sync(nil)
	if len(h.events) != 0 || len(h.failing) != 1 {
		t.Errorf("while a proxy before it may have the port: events %v, problems %v", h.events, h.failing)
	}
	h.config.Clock.(*testclock.FakeClock).Step(serve.Handover)
	h.sync(nil)
	h.sync(nil)
	h.expect("0.0.0.0:30002", good("b", 1))
	if len(h.events) != 1 {
		t.Fatalf("got %d events, want one: %v", len(h.events), h.events)
	}
	event := h.events[0]
	want := plan.Observed{{Namespace: "ns", Name: "a"}: {{Reason: plan.ProblemHealthCheck, Message: event.Message}}}
	if diff := cmp.Diff(want, h.failing); diff != "" {
		t.Errorf("the problems (-want +got):\n%s", diff)
	}
	if !strings.Contains(event.Message, "30001") || !strings.Contains(event.Message, "already in use") {
		t.Errorf("the message lacks the port or the cause: %s", event.Message)
	}
	event.Message = ""
	if diff := cmp.Diff(proxy.Event{
		Kind: "Service", Namespace: "ns", Name: "a", UID: "a-1", Warning: true, Reason: "FailedToStartServiceHealthcheck", Action: "Listen",
	}, event); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	name := cluster.ServiceName{Namespace: "ns", Name: "a"}
	h.services = h.services.Set(name, &plan.Service{Name: name, UID: "a-2", HealthCheck: &plan.HealthCheck{Port: 30001, LocalEndpoints: map[cluster.Family]int{cluster.IPv4: 1}}})
	h.sync(nil)
	if len(h.events) != 2 || h.events[1].UID != "a-2" {
		t.Errorf("no Event for the recreated Service: %+v", h.events[1:])
	}
	h.set("a", 30001, 1)
	h.release("0.0.0.0:30001")
	h.sync(nil)
	h.expect("0.0.0.0:30001", good("a", 1))
	if len(h.failing) != 0 {
		t.Errorf("problems of a port that is served: %v", h.failing)
	}
}

// TestServicesRetry checks that a failed listener is retried without a sync.
// TestServicesHaveDescriptors creates more health check node ports than there may be listeners: those that do not fit get an Event, and a
// listener when another one is gone.
func TestServicesHaveDescriptors(t *testing.T) {
	h := newHarness(t, true)
	for i := range h.config.MaxListeners + 1 {
		h.set(fmt.Sprint("s", i), uint16(30000+i), 1)
		h.sync(nil)
	}
	if len(h.opened) != h.config.MaxListeners || len(h.events) != 1 || !strings.Contains(h.events[0].Message, "ulimit -n") {
		t.Errorf("listening on %v; Events: %v", h.opened, h.events)
	}
	h.remove("s0")
	h.sync(nil)
	h.expect(fmt.Sprint("0.0.0.0:", 30000+h.config.MaxListeners), good(fmt.Sprint("s", h.config.MaxListeners), 1))
}

func TestServicesRetry(t *testing.T) {
	h := newHarness(t, true)
	clock := testclock.NewFakeClock(epoch)
	h.config.Clock = clock
	h.take("0.0.0.0:30001")
	h.set("a", 30001, 1)
	h.sync(nil)
	h.release("0.0.0.0:30001")

	opened := make(chan struct{})
	h.open = func(network, address string) (net.Listener, error) {
		defer close(opened)
		return h.listenFor(network, address)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Run(ctx) }()
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	clock.Step(retryPeriod)
	<-opened
	h.expect("0.0.0.0:30001", good("a", 1))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	h.expect("0.0.0.0:30001", seen{})
}

// TestServicesAddresses changes the addresses on which node ports are served.
func TestServicesAddresses(t *testing.T) {
	one, two, link := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("fe80::1")
	h := newHarness(t, false)
	h.setFamilies("a", 30001, map[cluster.Family]int{cluster.IPv4: 1, cluster.IPv6: 1})
	h.sync(nil)
	h.sync([]netip.Addr{one})
	h.expect("192.0.2.1:30001", good("a", 1))
	h.sync([]netip.Addr{one, two, link})
	h.expect("192.0.2.1:30001", good("a", 1))
	h.expect("[2001:db8::2]:30001", good("a", 1))
	h.sync([]netip.Addr{two})
	h.expect("192.0.2.1:30001", seen{})
	h.expect("[2001:db8::2]:30001", good("a", 1))
	if diff := cmp.Diff([]string{"192.0.2.1:30001", "[2001:db8::2]:30001"}, h.opened); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
	h.take("192.0.2.1:30001") // one address fails, the other is still served
	h.sync([]netip.Addr{one, two})
	h.expect("[2001:db8::2]:30001", good("a", 1))
	if len(h.events) != 1 {
		t.Errorf("got %d events, want one: %v", len(h.events), h.events)
	}
	h.release("192.0.2.1:30001")
	h.sync([]netip.Addr{one, two})
	h.expect("192.0.2.1:30001", good("a", 1))
	h.sync([]netip.Addr{two})
	h.take("192.0.2.1:30001") // it was served in between, so this is a new failure
	h.sync([]netip.Addr{one, two})
	if len(h.events) != 2 {
		t.Errorf("got %d events, want two: %v", len(h.events), h.events)
	}
}

// TestServicesFamilies checks that each family has its own socket and answer, and that there is no listener in a family
// that the Service does not have.
func TestServicesFamilies(t *testing.T) {
	h := newHarness(t, true)
	const four, six = "0.0.0.0:30001", "[::]:30001"
	both := func(ipv4, ipv6 int) map[cluster.Family]int {
		return map[cluster.Family]int{cluster.IPv4: ipv4, cluster.IPv6: ipv6}
	}
	for _, step := range []struct {
		endpoints map[cluster.Family]int
		four, six seen
	}{
		{both(1, 2), good("a", 1), good("a", 2)},
		{both(1, 0), good("a", 1), bad("a", 0, true)},
		{map[cluster.Family]int{cluster.IPv4: 1}, good("a", 1), seen{}},
		{map[cluster.Family]int{cluster.IPv6: 3}, seen{}, good("a", 3)},
		{both(0, 3), bad("a", 0, true), good("a", 3)},
	} {
		h.setFamilies("a", 30001, step.endpoints)
		h.sync(nil)
		h.expect(four, step.four)
		h.expect(six, step.six)
	}
	if diff := cmp.Diff([]string{four, six, six, four}, h.opened); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
}

// TestServicesBackendFamily checks that nothing listens in a family that the backend does not serve.
func TestServicesBackendFamily(t *testing.T) {
	h := newHarness(t, false)
	h.config.Families = []cluster.Family{cluster.IPv6}
	h.setFamilies("a", 30001, map[cluster.Family]int{cluster.IPv4: 1, cluster.IPv6: 1})
	h.sync([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::2")})
	if diff := cmp.Diff([]string{"[2001:db8::2]:30001"}, h.opened); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
}

// TestServicesRemoved checks that nothing listens for a Service that was deleted or has no health check any more, also
// after the addresses change or a port in use becomes free.
func TestServicesRemoved(t *testing.T) {
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	h := newHarness(t, false)
	h.take("192.0.2.1:30003")
	h.set("deleted", 30001, 1)
	h.set("changed", 30002, 1)
	h.set("waits", 30003, 1)
	h.sync([]netip.Addr{one})
	h.remove("deleted")
	h.set("changed", 0, 0)
	h.remove("waits")
	h.release("192.0.2.1:30003")
	h.sync([]netip.Addr{one})
	h.sync([]netip.Addr{two})
	if diff := cmp.Diff([]string{"192.0.2.1:30001", "192.0.2.1:30002"}, slices.Sorted(slices.Values(h.opened))); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
	for _, address := range h.opened {
		h.expect(address, seen{})
	}
}

// TestServicesCloseConnections checks that the connections of a removed check are closed: a load balancer may keep one open and
// would get outdated answers.
func TestServicesCloseConnections(t *testing.T) {
	h := newHarness(t, true)
	h.set("a", 30001, 1)
	h.sync(nil)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", h.at["0.0.0.0:30001"])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	ask := func() error {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
			return err
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}
	for range 2 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	h.remove("a")
	h.sync(nil)
	if err := ask(); err == nil {
		t.Error("the connection of a deleted Service still answers")
	}
}

// TestServicesReal opens a real port in both families, and frees it.
func TestServicesReal(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(listener.Addr().String())
	h := newHarness(t, true)
	h.open = NewServices(h.config).open
	h.setFamilies("a", address.Port(), map[cluster.Family]int{cluster.IPv4: 1, cluster.IPv6: 2})
	h.sync(nil)
	if len(h.events) != 1 {
		t.Errorf("got %d events for a port in use, want one", len(h.events))
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	h.sync(nil)
	port := strconv.Itoa(int(address.Port()))
	h.at["IPv4"], h.at["IPv6"] = net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port)
	h.expect("IPv4", good("a", 1))
	h.expect("IPv6", good("a", 2))
	h.end()
	for _, family := range []string{"IPv4", "IPv6"} {
		if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", h.at[family]); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s after the end: %v, want connection refused", family, err)
		}
	}
}
