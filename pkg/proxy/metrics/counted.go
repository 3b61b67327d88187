package metrics

import (
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

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

// addKernel adds the metrics of what the backend counts in the kernel. What cannot be read keeps its value.
func (r *registry) addKernel(config *Config) {
	kernel, names := &config.Counters, &config.Counters.Names
	r.addPackets(config, names.InvalidDropped, "Packets that were dropped because conntrack considers them invalid.", kernel.InvalidDropped)
	r.addPackets(config, names.LocalhostAccepted, "Accepted connections to node ports on loopback addresses, counted by their first packet.", kernel.LocalhostAccepted)
	if kernel.LocalhostRejected != nil && config.LocalhostRejected {
		r.addRejected(config)
	}
	if kernel.Clients != nil {
		r.addAffinity(config)
	}
}

// addPackets adds a counter of packets in all families, unless the backend does not count them.
func (r *registry) addPackets(config *Config, name, help string, packets func(cluster.Family) (uint64, error)) {
	if packets == nil {
		return
	}
	total, read := r.counter(upstream, name, help), readings[cluster.Family]{}
	r.onScrape(func() {
		for _, family := range config.Families {
			if now, err := packets(family); err == nil {
				total.Add(float64(read.growth(family, now)))
			}
		}
	}, total)
}

// addRejected adds the counter of packets that are rejected on loopback addresses.
func (r *registry) addRejected(config *Config) {
	type key struct {
		family   cluster.Family
		protocol cluster.Protocol
	}
	total, read := r.counters(upstream, config.Counters.Names.LocalhostRejected, "Packets to node ports that were rejected on a loopback address.",
		familyLabel, protocolLabel), readings[key]{}
	r.onScrape(func() {
		for _, family := range config.Families {
			packets, err := config.Counters.LocalhostRejected(family)
			if err != nil {
				continue
			}
			for protocol, now := range packets {
				total.WithLabelValues(family.String(), protocol.String()).Add(float64(read.growth(key{family, protocol}, now)))
			}
		}
	}, total)
}

// addAffinity adds how full the fullest map of session affinity is, and how many connections had a client that was not remembered.
func (r *registry) addAffinity(config *Config) {
	fullness := r.gauges(own, "affinity_fullness_ratio",
		"Share of the fullest map of session affinity that is used. If a Service's map is full, its new clients are balanced without affinity.", familyLabel)
	refused, read := r.counters(own, "affinity_refused_total",
		"Connections without session affinity, because the map of their Service's port was full.", familyLabel), readings[cluster.Family]{}
	r.onScrape(func() {
		for _, family := range config.Families {
			if clients, err := config.Counters.Clients(family); err == nil {
				fullness.WithLabelValues(family.String()).Set(clients.Fullest)
				refused.WithLabelValues(family.String()).Add(float64(read.growth(family, clients.Refused)))
			}
		}
	}, fullness, refused)
}
