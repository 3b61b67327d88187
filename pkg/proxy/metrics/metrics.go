package metrics

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/serve"
)

// Config configures a Metrics.
type Config struct {
	// Families are the families that the backend serves.
	Families []cluster.Family
	// Start is when the process started. Network programming latency is measured only for later changes.
	Start time.Time
	// Snapshot returns the current state, programmed or not: cluster.Builder.Snapshot.
	Snapshot func() *cluster.Snapshot
	// Observed returns the problems of Services that no plan shows; nil if there are none.
	Observed func() plan.Observed
	// InvalidManifests returns why not all manifests are in use; nil if objects come from elsewhere.
	InvalidManifests func() []string
	// Counters are the backend's, which are read at each scrape.
	Counters backend.KernelCounters
	// LocalhostRejected reports whether plans reject connections on loopback addresses (plan.Localhost).
	LocalhostRejected bool
	// Connections selects the metrics of connections. Empty means none.
	Connections ConnectionLevel
	// Limited reports whether plans limit connections (plan.Fences).
	Limited bool
	// Counter reads the kernel's counters of connections; nil if the backend has none.
	Counter backend.ConnectionCounter
}

// Metrics holds the metrics and updates them. It is an observer of syncs, queued changes and drift.
type Metrics struct {
	proxy.Ignore
	config Config
	metricSet
	// applied is the last snapshot that was programmed in all families; nil before the first sync, even one that failed.
	applied atomic.Pointer[cluster.Snapshot]
	// noLocal counts the ports without local endpoints.
	noLocal map[localKey]int

	failingMu sync.Mutex
	// failing holds the reason of each resource whose watch fails.
	failing map[string]string
}

var _ proxy.Observer = (*Metrics)(nil)

// New creates the metrics and registers them with register: legacyregistry.MustRegister or the like, which panics if
// one of their names is in use.
func New(config Config, register func(...metrics.Registerable)) *Metrics {
	m := &Metrics{config: config, noLocal: map[localKey]int{}, failing: map[string]string{}}
	r := &registry{}
	m.metricSet = newMetricSet(r, &config, m.pending)
	register(r.registerables()...)
	m.begin()
	return m
}

// begin sets the metrics that have a value before the first sync: counters are zero, so that their first
// increase is visible, and the first sync counts as queued since the start.
func (m *Metrics) begin() {
	m.ExternalIPs(0, 0)
	m.Queued(m.config.Start)
	for _, server := range []string{serve.Healthz, serve.HealthCheckPorts, serve.Metrics} {
		m.connectionsClosed.WithLabelValues(server)
	}
	for _, family := range m.config.Families {
		for _, c := range []*metrics.CounterVec{
			m.syncFailures, m.partialSyncFailures, m.cleanupFailures, m.rulesRepaired, m.elementsWritten, m.rulesWritten, m.conntrackDeleted, m.connectionsReset,
		} {
			c.WithLabelValues(family.String())
		}
		for _, policy := range []string{"internal", "external"} {
			m.noLocalEndpoints.WithLabelValues(family.String(), policy).Set(0)
		}
	}
}

// Queued records the time of a change that is not programmed yet.
func (m *Metrics) Queued(at time.Time) {
	for _, family := range m.config.Families {
		m.lastQueued.WithLabelValues(family.String()).Set(seconds(at))
	}
}

// Drifted counts an external modification of the rules.
func (m *Metrics) Drifted(d backend.Drift) {
	m.rulesRepaired.WithLabelValues(d.Family.String()).Inc()
}

// RelistHeld counts a list of the API server that was held back because it would have removed nearly all endpoints.
// It is safe for concurrent use.
func (m *Metrics) RelistHeld() { m.relistsHeld.Inc() }

// ConnectionClosed counts a connection to one of our servers that was closed to make room. It is safe for concurrent use.
func (m *Metrics) ConnectionClosed(server string) { m.connectionsClosed.WithLabelValues(server).Inc() }

// DataplaneBroken sets whether a check of the canary fails. It is safe for concurrent use.
func (m *Metrics) DataplaneBroken(check string, broken bool) {
	set(m.broken.WithLabelValues(check), broken)
}

// Waiting sets whether the proxy waits for a reason. It is safe for concurrent use.
func (m *Metrics) Waiting(reason string, waiting bool) {
	set(m.waiting.WithLabelValues(reason), waiting)
}

// set sets a gauge to 1 or 0.
func set(gauge metrics.GaugeMetric, is bool) {
	value := 0.0
	if is {
		value = 1
	}
	gauge.Set(value)
}

// WatchFailing sets why a resource cannot be listed or watched; an empty reason is for one that can. It is safe for
// concurrent use.
func (m *Metrics) WatchFailing(resource, reason string) {
	m.failingMu.Lock()
	defer m.failingMu.Unlock()
	if before := m.failing[resource]; before != "" {
		m.watchFailing.WithLabelValues(resource, before).Set(0)
	}
	m.failing[resource] = reason
	if reason != "" {
		m.watchFailing.WithLabelValues(resource, reason).Set(1)
	}
}

// OtherProxySeen records when rules of another kube-proxy of a mode were detected. It is safe for concurrent use.
func (m *Metrics) OtherProxySeen(mode string, at time.Time) {
	m.otherProxySeen.WithLabelValues(mode).Set(seconds(at))
}

// ConfigRefused counts a change of the configuration file that is invalid.
func (m *Metrics) ConfigRefused() { m.configRefused.Inc() }

// ConfigDiffers sets whether the configuration file differs from the effective configuration.
func (m *Metrics) ConfigDiffers(differs bool) {
	set(m.configDiffers, differs)
}

// ExternalIPs sets the number of Services with external IPs that are served, and that are ignored. It is safe for
// concurrent use.
func (m *Metrics) ExternalIPs(served, ignored int) {
	m.withExternalIPs.WithLabelValues("true").Set(float64(served))
	m.withExternalIPs.WithLabelValues("false").Set(float64(ignored))
}

// Healthz counts a response of /healthz by its status code. It is safe for concurrent use.
func (m *Metrics) Healthz(code int) { m.healthz.WithLabelValues(strconv.Itoa(code)).Inc() }

// Livez counts a response of /livez by its status code. It is safe for concurrent use.
func (m *Metrics) Livez(code int) { m.livez.WithLabelValues(strconv.Itoa(code)).Inc() }

// ConnectionsReset counts TCP connections to endpoints that are gone. It is safe for concurrent use.
func (m *Metrics) ConnectionsReset(family cluster.Family, connections int) {
	m.connectionsReset.WithLabelValues(family.String()).Add(float64(connections))
}

// ConntrackSwept records a sweep of the connection tracking table. It is safe for concurrent use.
func (m *Metrics) ConntrackSwept(family cluster.Family, took time.Duration, deleted int) {
	m.conntrackDuration.WithLabelValues(family.String()).Observe(took.Seconds())
	m.conntrackDeleted.WithLabelValues(family.String()).Add(float64(deleted))
}

// LocalhostListening sets the number of listeners for node ports on a family's loopback address. It is safe for
// concurrent use.
func (m *Metrics) LocalhostListening(family cluster.Family, listeners int) {
	m.localhostListeners.WithLabelValues(family.String()).Set(float64(listeners))
	m.localhostFailures.WithLabelValues(family.String()) // exposes a zero
}

// LocalhostFailed counts a failed attempt to listen on a node port. It is safe for concurrent use.
func (m *Metrics) LocalhostFailed(family cluster.Family) {
	m.localhostFailures.WithLabelValues(family.String()).Inc()
}

// Synced records a sync. Its cost is proportional to what changed.
func (m *Metrics) Synced(s *proxy.Sync) {
	for _, result := range s.Results {
		m.result(s, &result)
	}
	m.applied.CompareAndSwap(nil, &cluster.Snapshot{})
	if s.Applied != nil {
		changed := countOf(s.Applied.Services)
		m.serviceChanges.Add(float64(changed.services))
		m.endpointChanges.Add(float64(changed.slices))
		m.applied.Store(s.After)
	}
	m.countNoLocal(s)
	m.problems.synced(s)
	m.contested.Set(float64(s.Plan.Contested.Len()))
	m.delayed.Set(float64(len(s.Delayed)))
	m.fastPathDevices.Set(float64(len(s.Plan.Node.Devices)))
}

// result records the result of a sync in one family.
func (m *Metrics) result(s *proxy.Sync, result *backend.Result) {
	family, took := result.Family.String(), result.Duration.Seconds()
	m.syncDuration.WithLabelValues(family).Observe(took)
	if result.Read {
		m.fullSyncDuration.WithLabelValues(family).Observe(took)
	} else {
		m.partialSyncDuration.WithLabelValues(family).Observe(took)
	}
	m.elementsWritten.WithLabelValues(family).Add(float64(result.Elements))
	m.rulesWritten.WithLabelValues(family).Add(float64(result.Rules))
	m.refused.WithLabelValues(family).Set(float64(len(result.Refused)))
	for _, t := range result.Tables {
		m.tableRules.WithLabelValues(family, t.Name).Set(float64(t.Rules))
		m.tableRulesWritten.WithLabelValues(family, t.Name).Set(float64(t.Written))
	}
	failures := result.Failed
	if result.Err != nil {
		failures++
	}
	if failures > 0 {
		m.syncFailures.WithLabelValues(family).Add(float64(failures))
	}
	if result.Err != nil {
		if !result.Read {
			m.partialSyncFailures.WithLabelValues(family).Inc()
		}
		return
	}
	m.lastSynced.WithLabelValues(family).Set(seconds(s.Finished))
	if m.connections != nil {
		m.connections.synced(result.Family, s.Plan)
	}
	m.programmed(result.Family, s)
}

// programmed records the network programming latency of every slice that this sync programmed in one family: the time
// since the pod change that triggered it.
func (m *Metrics) programmed(family cluster.Family, s *proxy.Sync) {
	observer := m.networkProgramming.WithLabelValues(family.String())
	for _, change := range s.Programmed[family].Services {
		for old, now := range sliceChanges(change.Before, change.After) {
			if now != nil && now.Triggered > m.config.Start.UnixMicro() && (isOf(now, family) || isOf(old, family)) {
				observer.Observe(max(0, s.Finished.Sub(time.UnixMicro(now.Triggered)).Seconds()))
			}
		}
	}
}

// isOf reports whether a slice has endpoints of a family; all endpoints of a slice are of the same family.
func isOf(slice *cluster.EndpointSlice, family cluster.Family) bool {
	return slice != nil && len(slice.Endpoints) > 0 && cluster.FamilyOf(slice.Endpoints[0].Addr) == family
}

// pending returns the number of changes that are not programmed yet; none before the first sync, because the cluster's builder is
// faster until its first snapshot is taken.
func (m *Metrics) pending() changeCount {
	applied := m.applied.Load()
	if applied == nil {
		return changeCount{}
	}
	return countOf(cluster.Changes(applied.Services, m.config.Snapshot().Services))
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
