package metrics

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// kernelConnections holds the kernel's counters of connections. Those of other routes than the ones asked for are not returned.
type kernelConnections struct {
	err error
	// counting is what the rules count.
	counting backend.Counting
	// frontends counts by address, endpoints by map, frontend's address and endpoint: "endpoints 192.0.2.1 10.0.0.1".
	// limited counts what exceeds bounds, by address.
	frontends, endpoints, limited map[string]uint64
	// reading is called while the counters are read.
	reading func(ctx context.Context)
}

func newKernelConnections() *kernelConnections {
	return &kernelConnections{frontends: map[string]uint64{}, endpoints: map[string]uint64{}}
}

// Connections makes the fixture a backend that counts connections.
func (f *fixture) Counts(cluster.Family) backend.Counting { return f.kernel.counting }

func (f *fixture) Connections(ctx context.Context, family cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (*backend.Connections, error) {
	k := f.kernel
	if k.reading != nil {
		k.reading(ctx)
	}
	if k.err != nil {
		return nil, k.err
	}
	counts := backend.NewConnections()
	for route := range routes {
		if route.Frontend.Family() != family {
			return nil, fmt.Errorf("asked for %s of another family", route.Frontend)
		}
		if n, ok := k.frontends[route.Frontend.Addr.String()]; ok && (route.Verdict == plan.Balance || route.ShortCut != nil) {
			counts.Frontends[route.Frontend] = n
		}
		if n, ok := k.limited[route.Frontend.Addr.String()]; ok {
			counts.Limited[route.Frontend] = n
		}
		for _, endpoint := range route.Pool.Endpoints {
			for _, in := range []string{"endpoints", "local-endpoints"} {
				n, ok := k.endpoints[fmt.Sprint(in, " ", route.Frontend.Addr, " ", endpoint.Addr())]
				if ok && endpoints {
					to := backend.PortEndpoint{Port: route.Name, Protocol: route.Frontend.Protocol, Endpoint: endpoint}
					counts.Endpoints[backend.EndpointCounter{PortEndpoint: to, In: in, Frontend: route.Frontend}] = n
				}
			}
		}
	}
	return counts, nil
}

// connections returns the samples of a scrape as "name/port/protocol value", and "name/port/protocol/endpoint value".
func (f *fixture) connections() []string {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	samples := []string{}
	for _, family := range families {
		if !strings.HasSuffix(family.GetName(), "_connections_total") {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			name := fmt.Sprintf("%s/%s/%s", labels["service_name"], labels["port"], labels["protocol"])
			if e := labels["endpoint_address"]; e != "" {
				name += "/" + e
			}
			samples = append(samples, fmt.Sprint(name, " ", metric.GetCounter().GetValue()))
		}
	}
	slices.Sort(samples)
	return samples
}

func (f *fixture) wantConnections(when string, want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), f.connections()); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func (f *fixture) syncAll() { f.sync(start, wrote(cluster.IPv4), wrote(cluster.IPv6)) }

// TestServiceConnections follows the counters of a Service through all that happens to its rules.
func TestServiceConnections(t *testing.T) {
	f := newCounting(t, ServiceConnections)
	kernel := f.kernel.frontends
	f.wantConnections("before the first sync")
	f.slice("a", "10.0.0.1", start)
	f.syncAll()
	f.wantConnections("not written yet", "a//TCP 0")
	kernel["192.0.2.1"], kernel["0.0.0.0"] = 5, 2
	f.wantConnections("the kernel's numbers as they are found", "a//TCP 7")
	kernel["192.0.2.1"] = 3
	f.wantConnections("one element was written again", "a//TCP 10")
	delete(kernel, "192.0.2.1")
	f.wantConnections("not readable for a moment", "a//TCP 10")
	kernel["192.0.2.1"] = 4
	f.wantConnections("readable again", "a//TCP 11")

	f.kernel.err = errors.New("cannot read the counters")
	f.wantConnections("unreadable", "a//TCP 11")
	f.kernel.err = nil
	f.expect(`serviceproxy_connection_read_failures_total{ip_family=IPv4} 1`)

	f.slice("a", "", start)
	f.syncAll()
	f.wantConnections("without endpoints there is no counter", "a//TCP 11")
	f.slice("a", "10.0.0.2", start)
	f.syncAll()
	kernel["192.0.2.1"], kernel["0.0.0.0"] = 9, 2
	f.wantConnections("a new counter, though it is higher than the old one", "a//TCP 22")

	f.change("b", func(s *cluster.Service) {
		s.ClusterIPs = []netip.Addr{netip.MustParseAddr("192.0.2.2")}
		s.Ports = []cluster.ServicePort{{Name: "dns", Protocol: cluster.UDP, Port: 53}}
	})
	f.syncAll()
	f.wantConnections("another Service", "a//TCP 22", "b/dns/UDP 0")
	services := f.services
	f.services = f.services.Delete(cluster.ServiceName{Namespace: "ns", Name: "a"})
	f.sync(start, failed(cluster.IPv4), failed(cluster.IPv6))
	f.wantConnections("a deletion that is not in force", "a//TCP 22", "b/dns/UDP 0")
	f.syncAll()
	f.wantConnections("deleted", "b/dns/UDP 0")
	f.services = services
	f.syncAll()
	kernel["192.0.2.1"], kernel["0.0.0.0"] = 1, 0
	f.wantConnections("created again", "a//TCP 1", "b/dns/UDP 0")
}

// TestShortCutConnections changes the endpoints of a Service that only the node itself and its pods reach: with externalTrafficPolicy
// Local and endpoints on other nodes. Its rule stays, and with it the counter, which is not counted again.
func TestShortCutConnections(t *testing.T) {
	f := newCounting(t, ServiceConnections)
	f.slice("a", "10.0.0.1", start)
	f.change("a", func(s *cluster.Service) { s.ExternalPolicy = cluster.PolicyLocal })
	f.syncAll()
	f.kernel.frontends["0.0.0.0"] = 7
	f.wantConnections("read once", "a//TCP 7")
	f.slice("a", "10.0.0.2", start)
	f.syncAll()
	f.kernel.frontends["0.0.0.0"] = 8
	f.wantConnections("with another endpoint", "a//TCP 8")
}

// TestEndpointConnections rewrites one of the places that count an endpoint.
func TestEndpointConnections(t *testing.T) {
	f := newCounting(t, EndpointConnections)
	kernel := f.kernel.endpoints
	f.slice("a", "10.0.0.1", start)
	f.syncAll()
	f.wantConnections("unread", "a//TCP 0", "a//TCP/10.0.0.1:80 0")
	kernel["endpoints 192.0.2.1 10.0.0.1"], kernel["endpoints 0.0.0.0 10.0.0.1"] = 100, 50
	kernel["local-endpoints 0.0.0.0 10.0.0.1"] = 7
	f.wantConnections("summed", "a//TCP 0", "a//TCP/10.0.0.1:80 157")
	kernel["endpoints 0.0.0.0 10.0.0.1"] = 2
	f.wantConnections("one element was written again", "a//TCP 0", "a//TCP/10.0.0.1:80 159")
	f.slice("a", "10.0.0.2", start)
	f.syncAll()
	f.wantConnections("replaced", "a//TCP 0", "a//TCP/10.0.0.2:80 0")
	f.slice("a", "10.0.0.1", start)
	f.syncAll()
	clear(kernel)
	kernel["endpoints 192.0.2.1 10.0.0.1"] = 200
	f.wantConnections("a new counter, though it is higher than the old one", "a//TCP 0", "a//TCP/10.0.0.1:80 200")
}

// TestConnectionsNotCounted has no values of what the rules do not count.
func TestConnectionsNotCounted(t *testing.T) {
	f := newCounting(t, EndpointConnections)
	f.slice("a", "10.0.0.1", start)
	f.syncAll()
	f.kernel.counting = backend.CountServices
	f.wantConnections("endpoints are not counted", "a//TCP 0")
	f.kernel.counting = backend.CountNothing
	f.wantConnections("nothing is counted")
}

// TestConnectionsOff has no metrics of connections, and reads nothing.
func TestConnectionsOff(t *testing.T) {
	f := newCounting(t, NoConnections)
	f.kernel.reading = func(context.Context) { t.Error("counters were read") }
	f.slice("a", "10.0.0.1", start)
	f.syncAll()
	f.wantConnections("off")
}

// TestConnectionsOfHostileNames exposes names that no API server accepts.
func TestConnectionsOfHostileNames(t *testing.T) {
	f := newCounting(t, EndpointConnections)
	f.slice("a\xff\"\n<b>{}"+strings.Repeat("x", 5000), "10.0.0.1", start)
	f.syncAll()
	if got := f.connections(); len(got) != 2 || !strings.HasPrefix(got[0], `"a\xff\"\n<b>{}xxx`) {
		t.Errorf("got %.40q", got)
	}
	f.services = cluster.Map[cluster.ServiceName, *cluster.Service]{}
	f.syncAll()
	f.wantConnections("deleted")
}

// TestOneReaderOfConnections scrapes while another scrape reads: it gets the last values at once.
func TestOneReaderOfConnections(t *testing.T) {
	f := newCounting(t, ServiceConnections)
	f.slice("a", "10.0.0.1", start)
	f.syncAll()
	reads, began, end := 0, make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.kernel.frontends["192.0.2.1"] = 5
	f.kernel.reading = func(ctx context.Context) {
		reads++ // by one reader at a time
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("reading has no time limit")
		}
		once.Do(func() { close(began); <-end })
	}
	first := make(chan []string)
	go func() { first <- f.connections() }()
	<-began
	f.wantConnections("while another one reads")
	close(end)
	if got := <-first; !slices.Equal(got, []string{"a//TCP 5"}) {
		t.Errorf("the one that reads: %q", got)
	}
	f.wantConnections("afterwards", "a//TCP 5")
	if reads != 4 {
		t.Errorf("%d reads of a family, want 4", reads)
	}
}

// BenchmarkConnections scrapes 10,000 Services with two endpoints each, without the time of the kernel.
func BenchmarkConnections(b *testing.B) {
	for _, level := range []ConnectionLevel{NoConnections, ServiceConnections, EndpointConnections} {
		b.Run(string(level), func(b *testing.B) {
			f := &fixture{registry: metrics.NewKubeRegistry(), kernel: newKernelConnections()}
			m := New(Config{Families: []cluster.Family{cluster.IPv4}, Start: start, Snapshot: f.snapshot, Counters: f.counters(), Connections: level, Counter: f}, f.registry.MustRegister)
			p := clusters.NewSized(10_000, 2).Plan()
			counts := backend.NewConnections()
			for route := range p.Frontends.Values() {
				counts.Frontends[route.Frontend] = 5
				for _, endpoint := range route.Pool.Endpoints {
					if level == EndpointConnections {
						to := backend.PortEndpoint{Port: route.Name, Protocol: route.Frontend.Protocol, Endpoint: endpoint}
						counts.Endpoints[backend.EndpointCounter{PortEndpoint: to, In: "endpoints", Frontend: route.Frontend}] = 5
					}
				}
			}
			if level != NoConnections {
				m.connections.counter = fixedConnections{counts}
			}
			m.Synced(f.history.Add(&proxy.Sync{After: f.snapshot(), Plan: p, Results: []backend.Result{wrote(cluster.IPv4)}, Finished: start}))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type fixedConnections struct{ counts *backend.Connections }

func (fixedConnections) Counts(cluster.Family) backend.Counting { return backend.CountEndpoints }

func (f fixedConnections) Connections(context.Context, cluster.Family, iter.Seq[*plan.Route], bool) (*backend.Connections, error) {
	return f.counts, nil
}

// TestCanaryIsNotCounted follows a plan with the canary's route, which is no Service's.
func TestCanaryIsNotCounted(t *testing.T) {
	snapshot := &cluster.Snapshot{Node: &cluster.Node{}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	p := plan.Compute(snapshot, &plan.Options{Canary: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4000")}}, nil)
	c := &connections{byPort: newSeries[servicePort]("", ""), known: map[cluster.Family]*plan.Plan{}}
	c.follow(cluster.IPv4, p)
	if len(p.Canary) != 1 || len(c.byPort.all) > 0 {
		t.Errorf("%d routes of the canary, and %d series", len(p.Canary), len(c.byPort.all))
	}
}

// TestMoreCounted has counters of endpoints, which another reader of the shared counter asked for.
func TestMoreCounted(t *testing.T) {
	f := newCounting(t, ServiceConnections)
	f.slice("a", "10.0.0.1", start)
	f.syncAll()
	counts := backend.NewConnections()
	to := backend.PortEndpoint{Protocol: cluster.TCP, Endpoint: netip.MustParseAddrPort("10.0.0.1:80")}
	counts.Endpoints[backend.EndpointCounter{PortEndpoint: to, In: "endpoints"}] = 5
	f.Metrics.connections.counter = fixedConnections{counts}
	f.wantConnections("of endpoints, too", "a//TCP 0")
}
