package metrics

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

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

// connections exposes the kernel's counters of connections: of each Service that has a fence, the first packets that this dropped; and if
// wanted, the new connections of each port, and possibly of each endpoint. They are read at each scrape.
type connections struct {
	failures *metrics.CounterVec
	counter  backend.ConnectionCounter
	families []cluster.Family

	planMu sync.Mutex
	// plans holds the plan in force in each family.
	plans map[cluster.Family]*plan.Plan

	// known holds the plans whose frontends and endpoints have series.
	known                  map[cluster.Family]*plan.Plan
	ofFrontends, ofLimited readings[plan.Frontend]
	ofEndpoints            readings[backend.EndpointCounter]
	byService              *seriesOf[cluster.ServiceName]
	byPort                 *seriesOf[servicePort]          // nil unless wanted
	byEndpoint             *seriesOf[backend.PortEndpoint] // nil unless wanted
}

// servicePort is a port of a Service, by its labels in the order of their names.
type servicePort struct{ port, protocol, name, namespace string }

func servicePortOf(r *plan.Route) servicePort {
	return servicePort{r.Port(), r.Frontend.Protocol.String(), r.Service.Name, r.Service.Namespace}
}

func (p servicePort) values() []string { return []string{p.port, p.protocol, p.name, p.namespace} }

// newConnections makes such metrics. It returns nil if there is nothing to read: they hold on to a plan between scrapes.
func newConnections(r *registry, config *Config) *connections {
	wanted := config.Connections == ServiceConnections || config.Connections == EndpointConnections
	if config.Counter == nil || !wanted && !config.Limited {
		return nil
	}
	c := &connections{
		failures: r.counters(own, "connection_read_failures_total",
			"Scrapes that could not read the kernel's counters of connections, which kept their values.", familyLabel),
		counter: config.Counter, families: config.Families,
		plans: map[cluster.Family]*plan.Plan{}, known: map[cluster.Family]*plan.Plan{},
		ofFrontends: readings[plan.Frontend]{}, ofLimited: readings[plan.Frontend]{}, ofEndpoints: readings[backend.EndpointCounter]{},
		byService: newSeries[cluster.ServiceName]("service_connections_limited_total",
			"First packets of connections to a Service that were dropped because of its connection limits (feature gate ServiceLimits).",
			serviceNameLabel, serviceNamespaceLabel),
	}
	exposed := []metrics.Registerable{c.byService}
	if wanted {
		c.byPort = newSeries[servicePort]("service_connections_total",
			"New connections to a port of a Service that this node sent to an endpoint. A repeated first packet counts again.",
			portLabel, protocolLabel, serviceNameLabel, serviceNamespaceLabel)
		c.byPort.shown = func() bool { return backend.Counted(c.counter, c.families) < backend.CountNothing }
		exposed = append(exposed, c.byPort)
	}
	if config.Connections == EndpointConnections {
		c.byEndpoint = newSeries[backend.PortEndpoint]("endpoint_connections_total",
			"New connections to a port of a Service that this node sent to an endpoint. With session affinity, only the first ones of clients.",
			endpointLabel, portLabel, protocolLabel, serviceNameLabel, serviceNamespaceLabel)
		c.byEndpoint.shown = func() bool { return backend.Counted(c.counter, c.families) == backend.CountEndpoints }
		exposed = append(exposed, c.byEndpoint)
	}
	r.onScrape(c.read, exposed...)
	return c
}

// synced records the plan in force in a family.
func (c *connections) synced(family cluster.Family, p *plan.Plan) {
	c.planMu.Lock()
	defer c.planMu.Unlock()
	c.plans[family] = p
}

// read adds what the kernel has counted since the last reading. What cannot be read keeps its value. The first reading adds what it has
// counted so far: the rules, and with them the counters, outlive this process.
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
		routes := c.routes(p, family)
		if len(routes) == 0 {
			continue
		}
		counts, err := c.counter.Connections(ctx, family, slices.Values(routes), c.byEndpoint != nil)
		if err != nil {
			c.failures.WithLabelValues(family.String()).Inc()
			continue
		}
		c.add(p, counts)
	}
	c.byService.sort()
	c.byPort.sort()
	c.byEndpoint.sort()
}

// routes returns those of a family whose counters have series.
func (c *connections) routes(p *plan.Plan, family cluster.Family) (routes []*plan.Route) {
	if c.byPort == nil && len(c.byService.all) == 0 {
		return nil
	}
	for route := range p.Frontends.Values() {
		if route.Frontend.Family() == family && (c.byPort != nil || route.Fence != nil) {
			routes = append(routes, route)
		}
	}
	return routes
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
		if !change.Is || change.After.Fence == nil {
			delete(c.ofLimited, frontend)
		}
	}
	if c.byEndpoint != nil && removed {
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
	if r.Fence != nil {
		c.byService.hold(r.Service, n, func() []string { return []string{r.Service.Name, r.Service.Namespace} })
	}
	port := servicePortOf(r)
	if c.byPort != nil {
		c.byPort.hold(port, n, port.values)
	}
	if c.byEndpoint == nil {
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
	for frontend, now := range counts.Limited {
		if route, ok := p.Frontends.Get(frontend); ok && route.Fence != nil {
			c.byService.add(route.Service, c.ofLimited.growth(frontend, now))
		}
	}
	if c.byPort == nil {
		return
	}
	for frontend, now := range counts.Frontends {
		if growth := c.ofFrontends.growth(frontend, now); growth > 0 {
			if route, ok := p.Frontends.Get(frontend); ok {
				c.byPort.add(servicePortOf(route), growth)
			}
		}
	}
	if c.byEndpoint == nil { // another reader asked for more
		return
	}
	for of, now := range counts.Endpoints {
		if growth := c.ofEndpoints.growth(of, now); growth > 0 {
			c.byEndpoint.add(of.PortEndpoint, growth)
		}
	}
}
