package metrics

import (
	"context"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// limited exposes how many first packets of connections to each Service were dropped because it has a fence. Each scrape reads the
// kernel's counters of these Services.
type limited struct {
	*metrics.CounterVec
	counter  backend.ConnectionCounter
	families []cluster.Family

	reading sync.Mutex // held by the scrape that reads

	mu sync.Mutex // not held while the kernel is read: the sync waits for it
	// plan is the last one, services those with a fence.
	plan      *plan.Plan
	services  map[cluster.ServiceName]*plan.Service
	read      readings[plan.Frontend]
	byService *seriesOf[cluster.ServiceName]
}

// newLimited returns such a collector; nil if the backend does not count.
func newLimited(r *registry, config *Config) *limited {
	if config.Counter == nil {
		return nil
	}
	labels := []string{serviceNameLabel, serviceNamespaceLabel}
	return add(r, &limited{
		CounterVec: newCounters(own, "service_connections_limited_total",
			"First packets of connections to a Service that were dropped because of its connection limits (feature gate ServiceLimits).", labels...),
		counter: config.Counter, families: config.Families,
		services: map[cluster.ServiceName]*plan.Service{}, read: readings[plan.Frontend]{}, byService: newSeries[cluster.ServiceName](labels),
	})
}

// Describe is part of [prometheus.Collector].
func (l *limited) Describe(to chan<- *prometheus.Desc) { l.CounterVec.Describe(to) }

// synced follows the Services.
func (l *limited) synced(s *proxy.Sync) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plan = s.Plan
	for name, change := range s.Changes.Decisions {
		values := func() []string { return []string{name.Name, name.Namespace} }
		before := l.services[name]
		delete(l.services, name)
		if change.Is && change.After.Fence() != nil {
			l.services[name] = change.After
			l.byService.hold(name, +1, values)
		}
		if before == nil {
			continue
		}
		l.byService.hold(name, -1, values)
		if l.services[name] == nil { // its counters are removed, and new ones start at 0
			for _, route := range before.Routes {
				delete(l.read, route.Frontend)
			}
		}
	}
	l.byService.sort()
}

// Collect reads the kernel's counters. Those that cannot be read keep their values, and so do all while another scrape reads.
func (l *limited) Collect(to chan<- prometheus.Metric) {
	if l.reading.TryLock() {
		l.readAll()
		l.reading.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byService.collect(descOf(l.CounterVec), to)
}

func (l *limited) readAll() {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	for _, family := range l.families {
		routes := l.routes(family)
		if len(routes) == 0 {
			continue
		}
		if counts, err := l.counter.Connections(ctx, family, slices.Values(routes), false); err == nil {
			l.add(routes, counts)
		}
	}
}

// add adds what counters of routes grew by, as long as these are the Services' routes.
func (l *limited) add(routes []*plan.Route, counts *backend.Connections) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, route := range routes {
		now, counted := counts.Limited[route.Frontend]
		if served, _ := l.plan.Frontends.Get(route.Frontend); counted && served == route && l.services[route.Service] != nil {
			l.byService.add(route.Service, l.read.growth(route.Frontend, now))
		}
	}
}

// routes returns those of the Services in a family that are served.
func (l *limited) routes(family cluster.Family) (routes []*plan.Route) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, service := range l.services {
		for _, route := range service.Routes {
			if served, _ := l.plan.Frontends.Get(route.Frontend); served == route && route.Frontend.Family() == family {
				routes = append(routes, route)
			}
		}
	}
	return routes
}
