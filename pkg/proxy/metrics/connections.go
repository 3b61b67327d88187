package metrics

import (
	"context"
	"iter"
	"maps"
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
	// known holds the plans whose frontends and endpoints have series.
	known       map[cluster.Family]*plan.Plan
	ofFrontends readings[plan.Frontend]
	ofEndpoints readings[backend.EndpointCounter]
	byPort      *seriesOf[servicePort]
	byEndpoint  *seriesOf[backend.PortEndpoint]
}

// servicePort is a port of a Service, by its labels in the order of their names.
type servicePort struct{ port, protocol, name, namespace string }

func servicePortOf(r *plan.Route) servicePort {
	return servicePort{r.Port(), r.Frontend.Protocol.String(), r.Service.Name, r.Service.Namespace}
}

func (p servicePort) values() []string { return []string{p.port, p.protocol, p.name, p.namespace} }

// newConnections returns such a collector; nil if none is wanted, or if the backend does not count.
func newConnections(r *registry, config *Config) *connections {
	if config.Counter == nil || config.Connections == NoConnections || config.Connections == "" {
		return nil
	}
	labels := []string{portLabel, protocolLabel, serviceNameLabel, serviceNamespaceLabel}
	c := &connections{
		CounterVec: newCounters(own, "service_connections_total",
			"New connections to a port of a Service that this node sent to an endpoint. A repeated first packet counts again.", labels...),
		failures: r.counters(own, "connection_read_failures_total",
			"Scrapes that could not read the kernel's counters of connections, which kept their values.", familyLabel),
		counter: config.Counter, families: config.Families,
		plans: map[cluster.Family]*plan.Plan{}, known: map[cluster.Family]*plan.Plan{},
		ofFrontends: readings[plan.Frontend]{}, ofEndpoints: readings[backend.EndpointCounter]{},
		byPort: newSeries[servicePort](labels),
	}
	if config.Connections == EndpointConnections {
		labels = append([]string{endpointLabel}, labels...)
		c.byEndpoint = newSeries[backend.PortEndpoint](labels)
		c.endpoints = newCounters(own, "endpoint_connections_total",
			"New connections to a port of a Service that this node sent to an endpoint. With session affinity, only the first ones of clients.",
			labels...)
	}
	return add(r, c)
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
// reads. What the rules do not count is absent.
func (c *connections) Collect(to chan<- prometheus.Metric) {
	if c.readMu.TryLock() {
		c.read()
		c.readMu.Unlock()
	}
	counted := backend.Counted(c.counter, c.families)
	if counted < backend.CountNothing {
		c.byPort.collect(descOf(c.CounterVec), to)
	}
	if c.endpoints != nil && counted == backend.CountEndpoints {
		c.byEndpoint.collect(descOf(c.endpoints), to)
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
	for _, family := range c.families {
		p := plans[family]
		if p == nil {
			continue
		}
		c.follow(family, p)
		counts, err := c.counter.Connections(ctx, family, routesOf(p, family), c.endpoints != nil)
		if err != nil {
			c.failures.WithLabelValues(family.String()).Inc()
			continue
		}
		c.add(p, counts)
	}
	c.byPort.sort()
	if c.endpoints != nil {
		c.byEndpoint.sort()
	}
}

// follow creates and deletes the series of what differs between the last plan of a family and this one.
func (c *connections) follow(family cluster.Family, p *plan.Plan) {
	var before cluster.Map[plan.Frontend, *plan.Route]
	if known := c.known[family]; known != nil {
		before = known.Frontends
	}
	c.known[family] = p
	removed := false
	for frontend, change := range cluster.Changes(before, p.Frontends) {
		if frontend.Family() != family {
			continue
		}
		if change.Is {
			c.hold(change.After, +1)
		}
		if change.Was {
			c.hold(change.Before, -1)
			removed = true
		}
		if !change.Is || change.After.Verdict != plan.Balance && change.After.ShortCut == nil {
			delete(c.ofFrontends, frontend) // its counter was removed, and a new one starts at 0
		}
	}
	if c.endpoints != nil && removed {
		maps.DeleteFunc(c.ofEndpoints, func(of backend.EndpointCounter, _ uint64) bool {
			return cluster.FamilyOf(of.Endpoint.Addr()) == family && !c.byEndpoint.has(of.PortEndpoint)
		})
	}
}

// hold adds to the number of holders of a route's series.
func (c *connections) hold(r *plan.Route, n int) {
	if r.IsCanary() {
		return
	}
	port := servicePortOf(r)
	c.byPort.hold(port, n, port.values)
	if c.endpoints == nil {
		return
	}
	for _, pool := range []*plan.Pool{r.Pool, r.ShortCut} {
		if pool == nil {
			continue
		}
		for _, address := range pool.Endpoints {
			to := backend.PortEndpoint{Port: r.Name, Protocol: r.Frontend.Protocol, Endpoint: address}
			c.byEndpoint.hold(to, n, func() []string { return append([]string{address.String()}, port.values()...) })
		}
	}
}

// add adds what counters grew by.
func (c *connections) add(p *plan.Plan, counts *backend.Connections) {
	for frontend, now := range counts.Frontends {
		if growth := c.ofFrontends.growth(frontend, now); growth > 0 {
			if route, ok := p.Frontends.Get(frontend); ok {
				c.byPort.add(servicePortOf(route), growth)
			}
		}
	}
	for of, now := range counts.Endpoints {
		if growth := c.ofEndpoints.growth(of, now); growth > 0 {
			c.byEndpoint.add(of.PortEndpoint, growth)
		}
	}
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

// descOf returns the description of a metric that is registered.
func descOf(of *metrics.CounterVec) *prometheus.Desc {
	described := make(chan *prometheus.Desc, 1)
	of.Describe(described)
	return <-described
}
