package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// affinityFullness exposes how full the fullest map of session affinity is, by family.
type affinityFullness struct {
	*metrics.GaugeVec
	families []cluster.Family
	clients  func(cluster.Family) (backend.Clients, error)
}

// affinityRefused counts connections whose client was not remembered, by family.
type affinityRefused struct {
	*metrics.CounterVec
	families []cluster.Family
	clients  func(cluster.Family) (backend.Clients, error)

	mu   sync.Mutex
	read readings[cluster.Family]
}

// newAffinityFullness returns such a gauge; nil if the backend has no such maps.
func newAffinityFullness(config *Config) *affinityFullness {
	if config.Counters.Clients == nil {
		return nil
	}
	return &affinityFullness{
		GaugeVec: gauges(own, "affinity_fullness_ratio",
			"Share of the fullest map of session affinity that is used. If a Service's map is full, its new clients are balanced without affinity.",
			familyLabel),
		families: config.Families, clients: config.Counters.Clients,
	}
}

// newAffinityRefused returns such a counter; nil if the backend has no such maps.
func newAffinityRefused(config *Config) *affinityRefused {
	if config.Counters.Clients == nil {
		return nil
	}
	return &affinityRefused{
		CounterVec: counters(own, "affinity_refused_total",
			"Connections without session affinity, because the map of their Service's port was full.", familyLabel),
		families: config.Families, clients: config.Counters.Clients, read: readings[cluster.Family]{},
	}
}

// Collect reads the kernel. What cannot be read keeps its value.
func (a *affinityFullness) Collect(to chan<- prometheus.Metric) {
	for _, family := range a.families {
		if clients, err := a.clients(family); err == nil {
			a.WithLabelValues(family.String()).Set(clients.Fullest)
		}
	}
	a.GaugeVec.Collect(to)
}

// Collect reads the kernel's counters. Counters that cannot be read keep their values.
func (a *affinityRefused) Collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, family := range a.families {
		if clients, err := a.clients(family); err == nil {
			a.WithLabelValues(family.String()).Add(float64(a.read.growth(family, clients.Refused)))
		}
	}
	a.CounterVec.Collect(to)
}
