package metrics

import (
	"slices"
	"sync"

	"github.com/blang/semver/v4"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
)

// The namespaces of metrics: kube-proxy's and our own.
const (
	upstream = "kubeproxy"
	own      = "serviceproxy"
)

// registry makes metrics and collects them, to be registered together. A metric without a name, because the backend has none for it, is not
// registered: then all its updates have no effect.
type registry struct {
	all []metrics.Registerable
}

// onScrape lets read update metrics before each time that they are collected, together.
func (r *registry) onScrape(read func(), of ...metrics.Registerable) {
	r.all = slices.DeleteFunc(r.all, func(m metrics.Registerable) bool { return slices.Contains(of, m) })
	add(r, &scraped{Registerable: of[0], all: of, read: read})
}

// registerables returns the metrics to register.
func (r *registry) registerables() []metrics.Registerable {
	return slices.DeleteFunc(r.all, func(m metrics.Registerable) bool { return m.FQName() == "" })
}

// scraped are metrics that are read when they are collected, by one scrape at a time. One that comes meanwhile gets what is known.
type scraped struct {
	metrics.Registerable // the first of all
	all                  []metrics.Registerable
	mu                   sync.Mutex
	read                 func()
}

// Create creates all of them.
func (s *scraped) Create(version *semver.Version) bool {
	created := true
	for _, m := range s.all {
		created = m.Create(version) && created
	}
	return created
}

// Describe describes all of them.
func (s *scraped) Describe(to chan<- *prometheus.Desc) {
	for _, m := range s.all {
		m.Describe(to)
	}
}

// Collect sends the current values.
func (s *scraped) Collect(to chan<- prometheus.Metric) {
	if s.mu.TryLock() {
		s.read()
		s.mu.Unlock()
	}
	for _, m := range s.all {
		m.Collect(to)
	}
}

// add adds a metric.
func add[M metrics.Registerable](r *registry, m M) M {
	r.all = append(r.all, m)
	return m
}

func (r *registry) histogram(name, help string, buckets []float64) *metrics.HistogramVec {
	return add(r, metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: upstream, Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA,
	}, []string{familyLabel}))
}

func (r *registry) counters(namespace, name, help string, labels ...string) *metrics.CounterVec {
	return add(r, newCounters(namespace, name, help, labels...))
}

func newCounters(namespace, name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Namespace: namespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
}

func (r *registry) counter(namespace, name, help string) *metrics.Counter {
	return add(r, metrics.NewCounter(&metrics.CounterOpts{Namespace: namespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA}))
}

func (r *registry) gauges(namespace, name, help string, labels ...string) *metrics.GaugeVec {
	return add(r, metrics.NewGaugeVec(&metrics.GaugeOpts{Namespace: namespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels))
}

func (r *registry) gauge(namespace, name, help string) *metrics.Gauge {
	return add(r, metrics.NewGauge(&metrics.GaugeOpts{Namespace: namespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA}))
}

// syncBuckets returns buckets from 1 ms to 16 s, each twice the one before.
func syncBuckets() []float64 { return metrics.ExponentialBuckets(0.001, 2, 15) }

// programmingBuckets returns buckets up to 5 minutes, with a resolution of 1 s up to 1 minute for the SLO.
func programmingBuckets() []float64 {
	return slices.Concat(
		metrics.LinearBuckets(0.25, 0.25, 2),
		metrics.LinearBuckets(1, 1, 59),
		metrics.LinearBuckets(60, 5, 12),
		metrics.LinearBuckets(120, 30, 7),
	)
}
