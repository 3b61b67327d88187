package metrics

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/blang/semver/v4"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// ConnectionLevel selects the metrics of connections. It is a flag's value.
type ConnectionLevel string

// There are no metrics of connections; there is one for each port of a Service; and one for each of its endpoints too.
const (
	NoConnections       ConnectionLevel = "none"
	ServiceConnections  ConnectionLevel = "service"
	EndpointConnections ConnectionLevel = "endpoint"
)

// String returns the value.
func (l *ConnectionLevel) String() string { return string(*l) }

// Set parses a value.
func (l *ConnectionLevel) Set(text string) error {
	switch level := ConnectionLevel(text); level {
	case NoConnections, ServiceConnections, EndpointConnections:
		*l = level
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", NoConnections, ServiceConnections, EndpointConnections)
}

// Type returns the name of the value in the help.
func (*ConnectionLevel) Type() string { return "level" }

// readTimeout limits the time of a scrape that reads the counters of connections. Prometheus waits 10 s by default.
const readTimeout = 5 * time.Second

// connections exposes the kernel's counters of new connections by Service port, and possibly by endpoint. They are read at
// each scrape, by one scrape at a time.
type connections struct {
	*metrics.CounterVec
	endpoints *metrics.CounterVec // nil unless wanted
	failures  *metrics.CounterVec
	counter   backend.ConnectionCounter
	families  []cluster.Family

	planMu sync.Mutex
	// plans holds the plan in force in each family.
	plans map[cluster.Family]*plan.Plan

	readMu sync.Mutex
	// The last readings, and the series that exist.
	ofFrontends readings[plan.Frontend]
	ofEndpoints readings[backend.EndpointCounter]
	series      map[servicePort]bool
	details     map[endpointSeries]bool
}

// servicePort is a port of a Service, by its labels.
type servicePort struct{ namespace, name, port, protocol string }

func servicePortOf(r *plan.Route) servicePort {
	return servicePort{r.Service.Namespace, r.Service.Name, r.Port, r.Frontend.Protocol.String()}
}

// labels returns the label values. Invalid UTF-8, which Prometheus refuses, can only come from a manifest or API server
// that does not validate names.
func (p servicePort) labels() []string {
	values := []string{p.namespace, p.name, p.port, p.protocol}
	for i, value := range values {
		values[i] = strings.ToValidUTF8(value, "\ufffd")
	}
	return values
}

// endpointSeries is an endpoint of a port of a Service.
type endpointSeries struct {
	servicePort
	backend.PortEndpoint
}

func (e endpointSeries) labels() []string {
	return append(e.servicePort.labels(), e.Endpoint.String())
}

// newConnections returns such a collector; nil if none is wanted, or if the backend does not count.
func newConnections(config *Config) *connections {
	counter, ok := config.Backend.(backend.ConnectionCounter)
	if !ok || config.Connections == NoConnections || config.Connections == "" {
		return nil
	}
	labels := []string{serviceNamespaceLabel, serviceNameLabel, portLabel, protocolLabel}
	c := &connections{
		CounterVec: counters(own, "service_connections_total",
			"New connections to a port of a Service that were sent to an endpoint, as the kernel counted them on this node. A repeated first packet counts again.", labels...),
		failures: counters(own, "connection_read_failures_total",
			"Scrapes that could not read the kernel's counters of connections; these metrics kept their values.", familyLabel),
		counter: counter, families: config.Families, plans: map[cluster.Family]*plan.Plan{},
		ofFrontends: readings[plan.Frontend]{}, ofEndpoints: readings[backend.EndpointCounter]{},
		series: map[servicePort]bool{}, details: map[endpointSeries]bool{},
	}
	if config.Connections == EndpointConnections {
		c.endpoints = counters(own, "endpoint_connections_total",
			"New connections that were sent to an endpoint of a Service's port, as the kernel counted them on this node. With session affinity, only the first connections of its clients.",
			append(labels, endpointLabel)...)
	}
	return c
}

// Create creates all metrics.
func (c *connections) Create(version *semver.Version) bool {
	if c.endpoints != nil {
		c.endpoints.Create(version)
	}
	return c.CounterVec.Create(version)
}

// Describe describes all metrics.
func (c *connections) Describe(to chan<- *prometheus.Desc) {
	c.CounterVec.Describe(to)
	if c.endpoints != nil {
		c.endpoints.Describe(to)
	}
}

// Collect reads the kernel's counters. What cannot be read keeps its value, and so does everything while another scrape
// reads.
func (c *connections) Collect(to chan<- prometheus.Metric) {
	if c.readMu.TryLock() {
		c.read()
		c.readMu.Unlock()
	}
	c.CounterVec.Collect(to)
	if c.endpoints != nil {
		c.endpoints.Collect(to)
	}
}

// synced records the plan in force in a family.
func (c *connections) synced(family cluster.Family, p *plan.Plan) {
	c.planMu.Lock()
	defer c.planMu.Unlock()
	c.plans[family] = p
}

// read adds what the kernel has counted since the last reading. The first reading adds what it has counted so far: the
// rules, and with them the counters, outlive this process.
func (c *connections) read() {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	c.planMu.Lock()
	plans := maps.Clone(c.plans)
	c.planMu.Unlock()
	ports, endpoints := map[servicePort]bool{}, map[endpointSeries]bool{}
	for _, family := range c.families {
		p := plans[family]
		if p == nil {
			continue
		}
		counts, err := c.counter.Connections(ctx, family, routesOf(p, family), c.endpoints != nil)
		if err != nil {
			c.failures.WithLabelValues(family.String()).Inc()
			counts = backend.NewConnections()
		}
		c.addFrontends(p, family, counts, ports)
		if c.endpoints != nil {
			c.addEndpoints(p, family, counts, endpoints)
		}
	}
	forget(c.CounterVec, c.series, ports, servicePort.labels)
	c.series = ports
	if c.endpoints != nil {
		forget(c.endpoints, c.details, endpoints, endpointSeries.labels)
		c.details = endpoints
	}
}

// addFrontends adds the growth of frontends to their ports, and notes the ports in found.
func (c *connections) addFrontends(p *plan.Plan, family cluster.Family, counts *backend.Connections, found map[servicePort]bool) {
	grown := map[servicePort]float64{}
	for route := range routesOf(p, family) {
		port := servicePortOf(route)
		now, counted := counts.Frontends[route.Frontend]
		switch {
		case counted:
			grown[port] += c.ofFrontends.growth(route.Frontend, now)
		case route.Verdict != plan.Balance:
			delete(c.ofFrontends, route.Frontend) // its counter was removed, and will restart
			grown[port] += 0
		default:
			grown[port] += 0 // it was not read
		}
	}
	for port, n := range grown {
		found[port] = true
		c.WithLabelValues(port.labels()...).Add(n)
	}
	maps.DeleteFunc(c.ofFrontends, func(of plan.Frontend, _ uint64) bool {
		_, ok := p.Frontends.Get(of)
		return !ok && of.Family() == family
	})
}

// addEndpoints does the same for endpoints.
func (c *connections) addEndpoints(p *plan.Plan, family cluster.Family, counts *backend.Connections, found map[endpointSeries]bool) {
	planned := map[backend.PortEndpoint]servicePort{}
	for route := range routesOf(p, family) {
		for _, pool := range []*plan.Pool{route.Pool, route.ShortCut} {
			if pool == nil {
				continue
			}
			for _, endpoint := range pool.Endpoints {
				planned[backend.PortEndpoint{Port: route.Name, Protocol: route.Frontend.Protocol, Endpoint: endpoint}] = servicePortOf(route)
			}
		}
	}
	grown := make(map[backend.PortEndpoint]float64, len(planned))
	for of, now := range counts.Endpoints {
		grown[of.PortEndpoint] += c.ofEndpoints.growth(of, now)
	}
	for endpoint, port := range planned {
		series := endpointSeries{port, endpoint}
		found[series] = true
		c.endpoints.WithLabelValues(series.labels()...).Add(grown[endpoint])
	}
	maps.DeleteFunc(c.ofEndpoints, func(of backend.EndpointCounter, _ uint64) bool {
		_, ok := planned[of.PortEndpoint]
		return !ok && cluster.FamilyOf(of.Endpoint.Addr()) == family
	})
}

// routesOf yields the routes of a family.
func routesOf(p *plan.Plan, family cluster.Family) iter.Seq[*plan.Route] {
	return func(yield func(*plan.Route) bool) {
		for route := range p.Frontends.Values() {
			if route.Frontend.Family() == family && !yield(route) {
				return
			}
		}
	}
}

// forget deletes the series that no longer exist.
func forget[S comparable](from *metrics.CounterVec, before, now map[S]bool, labels func(S) []string) {
	for series := range before {
		if !now[series] {
			from.DeleteLabelValues(labels(series)...)
		}
	}
}
