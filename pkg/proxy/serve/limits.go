package serve

import (
	"net/netip"

	"k8s.io/klog/v2"
)

// The servers of the process, as metrics name them.
const (
	Healthz          = "healthz"
	HealthCheckPorts = "health_check_node_ports"
	Metrics          = "metrics"
)

// The most connections of each server. A probe takes a millisecond, so a hundred are many; whoever reads metrics and pages keeps its
// connection open, and may need much memory for a response.
const (
	mostHealthz          = 128
	mostHealthCheckPorts = 256
	mostMetrics          = 32
	// mostForwarded is for the node ports on localhost, all together.
	mostForwarded = 4096
)

// Buffers of the kernel for a response: health is a few hundred bytes. A list of Services is long, and the network may be.
const (
	healthBuffer = 8 << 10
	pageBuffer   = 64 << 10
)

// Limits are the limits of all servers of the process, so that clients cannot use up its file descriptors and its memory.
type Limits struct {
	Healthz, HealthCheckPorts, Metrics *Limit
	// Listeners is the most listeners on health check node ports.
	Listeners int
	// Forwarded is the most connections to node ports on localhost; each of them has two descriptors.
	Forwarded int
}

// NewLimits returns the limits of a process that may have a number of file descriptors. Connections have at most five sixteenths of
// them: one for each server and each end of a forwarded connection. Listeners have at most half. The rest is in reserve for the rules,
// which need some 30 for the process itself and 10 for a program that it starts. user is the User of each Limit, closed is called with the
// name of a server that had to close a connection.
func NewLimits(descriptors uint64, user func(client, server netip.AddrPort) (uint32, error), closed func(server string)) *Limits {
	share := int(max(1, min(descriptors/16, mostForwarded)))
	limit := func(server string, most, buffer int) *Limit {
		return &Limit{Most: min(most, share), SendBuffer: buffer, User: user, Closed: func() { closed(server) }}
	}
	return &Limits{
		Healthz:          limit(Healthz, mostHealthz, healthBuffer),
		HealthCheckPorts: limit(HealthCheckPorts, mostHealthCheckPorts, healthBuffer),
		Metrics:          limit(Metrics, mostMetrics, pageBuffer),
		Listeners:        int(min(descriptors/2, 1<<16)),
		Forwarded:        min(mostForwarded, share),
	}
}

// Log says at level 2 what the limits are.
func (l *Limits) Log(logger klog.Logger) {
	logger.V(2).Info("Limiting the connections to this process", Healthz, l.Healthz.Most, "healthCheckNodePorts", l.HealthCheckPorts.Most,
		Metrics, l.Metrics.Most, "healthCheckNodePortListeners", l.Listeners, "forwarded", l.Forwarded)
}
