package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// scraped is a gauge whose value is computed at each scrape.
type scraped struct {
	*metrics.Gauge
	value func() float64
}

// Collect sends the current value.
func (g *scraped) Collect(to chan<- prometheus.Metric) {
	g.Set(g.value())
	g.Gauge.Collect(to)
}

// readings holds the last values of kernel counters, which restart at 0 when their table or rule is replaced.
type readings[K comparable] map[K]uint64

// growth returns the increase of a counter since its last reading.
func (r readings[K]) growth(of K, now uint64) uint64 {
	before := r[of]
	if now < before {
		before = 0
	}
	r[of] = now
	return now - before
}

// counted exposes a packet counter of the kernel, summed over the families.
type counted struct {
	*metrics.Counter
	families []cluster.Family
	packets  func(cluster.Family) (uint64, error)

	mu   sync.Mutex
	read readings[cluster.Family]
}

// newCounted returns such a counter; nil if the backend has no name for it, or does not count.
func newCounted(config *Config, name, help string, packets func(cluster.Family) (uint64, error)) *counted {
	if packets == nil || name == "" {
		return nil
	}
	return &counted{Counter: counter(upstream, name, help), families: config.Families, read: readings[cluster.Family]{}, packets: packets}
}

// Collect reads the kernel's counters. Counters that cannot be read keep their values.
func (c *counted) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, family := range c.families {
		if now, err := c.packets(family); err == nil {
			c.Add(float64(c.read.growth(family, now)))
		}
	}
	c.Counter.Collect(to)
}

// rejectedOnLocalhost exposes packet counters of the kernel by family and protocol.
type rejectedOnLocalhost struct {
	*metrics.CounterVec
	families []cluster.Family
	packets  func(cluster.Family) (map[cluster.Protocol]uint64, error)

	mu   sync.Mutex
	read readings[localhostPackets]
}

// localhostPackets is the key of rejectedOnLocalhost.
type localhostPackets struct {
	family   cluster.Family
	protocol cluster.Protocol
}

// newRejectedOnLocalhost returns such a counter; nil if the backend has no name for it, or does not count, or if no plan
// rejects such packets.
func newRejectedOnLocalhost(config *Config, name string) *rejectedOnLocalhost {
	if config.Counters.LocalhostRejected == nil || name == "" || !config.LocalhostRejected {
		return nil
	}
	return &rejectedOnLocalhost{
		CounterVec: counters(upstream, name,
			"Packets to node ports that were rejected on a loopback address.", familyLabel, protocolLabel),
		families: config.Families, packets: config.Counters.LocalhostRejected,
		read: readings[localhostPackets]{},
	}
}

// Collect reads the kernel's counters. Counters that cannot be read keep their values.
func (r *rejectedOnLocalhost) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, family := range r.families {
		packets, err := r.packets(family)
		if err != nil {
			continue
		}
		for protocol, now := range packets {
			grown := r.read.growth(localhostPackets{family, protocol}, now)
			r.WithLabelValues(family.String(), protocol.String()).Add(float64(grown))
		}
	}
	r.CounterVec.Collect(to)
}
