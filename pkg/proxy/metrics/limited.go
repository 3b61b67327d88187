package metrics

import (
	"context"
	"iter"
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

	mu sync.Mutex
	// plan is the last one, services those with a fence.
	plan      *plan.Plan
	services  map[cluster.ServiceName]*plan.Service
	read      readings[plan.Frontend]
	byService *seriesOf[cluster.ServiceName]
}

// newLimited returns such a collector; nil if the backend does not count.
func newLimited(config *Config) *limited {
	if config.Counter == nil {
		return nil
	}
	labels := []string{serviceNameLabel, serviceNamespaceLabel}
	return &limited{
		CounterVec: counters(own, "service_connections_limited_total",
			"First packets of connections to a Service that were dropped because of its connection limits (feature gate ServiceLimits).", labels...),
		counter: config.Counter, families: config.Families,
		services: map[cluster.ServiceName]*plan.Service{}, read: readings[plan.Frontend]{}, byService: newSeries[cluster.ServiceName](labels),
	}
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

// Collect reads the kernel's counters. Those that cannot be read keep their values.
func (l *limited) Collect(to chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	for _, family := range l.families {
		if len(l.services) == 0 {
			break
		}
		counts, err := l.counter.Connections(ctx, family, l.routes(family), false)
		if err != nil {
			continue
		}
		for frontend, now := range counts.Limited {
			if route, ok := l.plan.Frontends.Get(frontend); ok {
				l.byService.add(route.Service, l.read.growth(frontend, now))
			}
		}
	}
	l.byService.collect(descOf(l.CounterVec), to)
}

// routes yields those of the Services in a family that are served.
func (l *limited) routes(family cluster.Family) iter.Seq[*plan.Route] {
	return func(yield func(*plan.Route) bool) {
		for _, service := range l.services {
			for _, route := range service.Routes {
				if served, _ := l.plan.Frontends.Get(route.Frontend); served == route && route.Frontend.Family() == family && !yield(route) {
					return
				}
			}
		}
	}
}
