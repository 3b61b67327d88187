package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// rejectedOnLocalhost counts packets that the kernel has counted, whose own counters end with the table that they are in.
type rejectedOnLocalhost struct {
	*metrics.CounterVec
	config *Config

	mu sync.Mutex
	// read is what the kernel's counters said last.
	read map[localhostPackets]uint64
}

// localhostPackets is how rejectedOnLocalhost is told apart.
type localhostPackets struct {
	family   cluster.Family
	protocol cluster.Protocol
}

// newRejectedOnLocalhost makes the counter; nil where nobody can read the kernel's.
func newRejectedOnLocalhost(config *Config) *rejectedOnLocalhost {
	if config.RejectedOnLocalhost == nil {
		return nil
	}
	return &rejectedOnLocalhost{
		CounterVec: counters(upstream, "nftables_localhost_nodeport_rejected_packets_total",
			"Packets to node ports that were rejected on a loopback address.", familyLabel, protocolLabel),
		config: config,
		read:   map[localhostPackets]uint64{},
	}
}

// Collect reads the kernel's counters. What cannot be read keeps its value.
func (r *rejectedOnLocalhost) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, family := range r.config.Families {
		packets, err := r.config.RejectedOnLocalhost(family)
		if err != nil {
			continue
		}
		for protocol, now := range packets {
			key := localhostPackets{family, protocol}
			before := r.read[key]
			if now < before { // another table
				before = 0
			}
			r.read[key] = now
			r.WithLabelValues(family.String(), protocol.String()).Add(float64(now - before))
		}
	}
	r.CounterVec.Collect(to)
}
