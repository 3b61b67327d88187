package metrics

import (
	"iter"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Config is what a Metrics is made of.
type Config struct {
	// Families are those that the backend serves.
	Families []cluster.Family
	// Start is when the process started. How long changes from before took is not measured.
	Start time.Time
	// Snapshot is what is known now, programmed or not: cluster.Builder.Snapshot.
	Snapshot func() *cluster.Snapshot
	Names    Names
	// RejectedOnLocalhost reads how many packets to node ports the kernel has rejected on a family's loopback addresses, by
	// protocol. It is called at each scrape; nil is a backend that rejects none.
	RejectedOnLocalhost func(family cluster.Family) (map[cluster.Protocol]uint64, error)
	// Packets reads what the backend's rules count. It is called at each scrape; nil is a backend whose rules do not.
	Packets backend.PacketCounter
}

// Names are those, below kubeproxy_, that a backend has for what is counted of it alone. What has no name is not shown.
type Names struct {
	// SyncFailures counts syncs that failed, PartialSyncFailures those among them that wrote just what had changed.
	SyncFailures, PartialSyncFailures, CleanupFailures string
	// TableRules is how many rules each table has, TableRulesWritten how many of them the last sync wrote.
	TableRules, TableRulesWritten string
	// InvalidDropped and LocalhostAccepted are what backend.PacketCounter tells, of all families together.
	InvalidDropped, LocalhostAccepted string
}

// Metrics measures. It is a proxy.Observer.
type Metrics struct {
	config Config
	metricSet
	// applied is the last snapshot that was programmed in all families.
	applied atomic.Pointer[cluster.Snapshot]
	// byFamily are the Services as they were last programmed in each family.
	byFamily map[cluster.Family]cluster.Map[cluster.ServiceName, *cluster.Service]
	// counted are the Services that noLocal counts.
	counted cluster.Map[cluster.ServiceName, *plan.Service]
	noLocal map[localKey]int
}

var (
	_ proxy.QueueObserver = (*Metrics)(nil)
	_ proxy.DriftObserver = (*Metrics)(nil)
)

// New makes the metrics and registers them: register is legacyregistry.MustRegister or the like, and panics
// when something else bears one of their names.
func New(config Config, register func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		config:   config,
		byFamily: map[cluster.Family]cluster.Map[cluster.ServiceName, *cluster.Service]{},
		noLocal:  map[localKey]int{},
	}
	m.applied.Store(&cluster.Snapshot{})
	m.metricSet = newMetricSet(&config, m.pending)
	register(m.all()...)
	m.begin()
	return m
}

// begin shows the metrics that have a value before the first sync: counters are zero, so that their first increase can be
// seen, and the first sync has been queued since the start.
func (m *Metrics) begin() {
	m.ExternalIPs(0, 0)
	m.Queued(m.config.Start)
	for _, family := range m.config.Families {
		for _, c := range []*metrics.CounterVec{
			m.syncFailures, m.partialSyncFailures, m.cleanupFailures, m.rulesRepaired, m.elementsWritten, m.rulesWritten, m.conntrackDeleted,
		} {
			if c != nil {
				c.WithLabelValues(family.String())
			}
		}
		for _, policy := range []string{"internal", "external"} {
			m.noLocalEndpoints.WithLabelValues(family.String(), policy).Set(0)
		}
	}
}

// Queued notes when something was last found that is not programmed yet.
func (m *Metrics) Queued(at time.Time) {
	for _, family := range m.config.Families {
		m.lastQueued.WithLabelValues(family.String()).Set(seconds(at))
	}
}

// Drifted counts a change by somebody else.
func (m *Metrics) Drifted(d backend.Drift) {
	m.rulesRepaired.WithLabelValues(d.Family.String()).Inc()
}

// RelistHeld counts a list of the API server that was not believed at first, because it would have taken
// nearly all endpoints away. It may be called by any goroutine.
func (m *Metrics) RelistHeld() { m.relistsHeld.Inc() }

// Waiting shows whether the proxy waits for a reason. It may be called by any goroutine.
func (m *Metrics) Waiting(reason string, waiting bool) {
	value := 0.0
	if waiting {
		value = 1
	}
	m.waiting.WithLabelValues(reason).Set(value)
}

// OtherProxySeen notes that another kube-proxy of a mode was seen to write rules. It may be called by any goroutine.
func (m *Metrics) OtherProxySeen(mode string, at time.Time) {
	m.otherProxySeen.WithLabelValues(mode).Set(seconds(at))
}

// ConfigRefused counts a new content of the configuration file that is invalid.
func (m *Metrics) ConfigRefused() { m.configRefused.Inc() }

// ConfigDiffers sets whether the configuration file differs from the configuration in force.
func (m *Metrics) ConfigDiffers(differs bool) {
	if differs {
		m.configDiffers.Set(1)
	} else {
		m.configDiffers.Set(0)
	}
}

// ExternalIPs tells how many Services ask for external IPs: those whose are served, and those whose are not. It may be
// called by any goroutine.
func (m *Metrics) ExternalIPs(served, ignored int) {
	m.withExternalIPs.WithLabelValues("true").Set(float64(served))
	m.withExternalIPs.WithLabelValues("false").Set(float64(ignored))
}

// Healthz counts an answer of /healthz by its code. It may be called by any goroutine.
func (m *Metrics) Healthz(code int) { m.healthz.WithLabelValues(strconv.Itoa(code)).Inc() }

// Livez counts an answer of /livez by its code. It may be called by any goroutine.
func (m *Metrics) Livez(code int) { m.livez.WithLabelValues(strconv.Itoa(code)).Inc() }

// ConntrackSwept measures a search for stale UDP flows. It may be called by any goroutine.
func (m *Metrics) ConntrackSwept(family cluster.Family, took time.Duration, deleted int) {
	m.conntrackDuration.WithLabelValues(family.String()).Observe(took.Seconds())
	m.conntrackDeleted.WithLabelValues(family.String()).Add(float64(deleted))
}

// LocalhostListening tells the number of node ports that are listened for on a family's loopback address. It may be
// called by any goroutine.
func (m *Metrics) LocalhostListening(family cluster.Family, listeners int) {
	m.localhostListeners.WithLabelValues(family.String()).Set(float64(listeners))
	m.localhostFailures.WithLabelValues(family.String()) // shows that there were none
}

// LocalhostFailed counts a node port that could not be listened for. It may be called by any goroutine.
func (m *Metrics) LocalhostFailed(family cluster.Family) {
	m.localhostFailures.WithLabelValues(family.String()).Inc()
}

// Synced measures a sync. Its cost follows what changed.
func (m *Metrics) Synced(s *proxy.Sync) {
	for _, result := range s.Results {
		m.result(s, &result)
	}
	if s.Err() == nil {
		changed := countChanges(m.applied.Load().Services, s.After.Services)
		m.serviceChanges.Add(float64(changed.services))
		m.endpointChanges.Add(float64(changed.slices))
		m.applied.Store(s.After)
	}
	m.countNoLocal(s.Plan)
	m.contested.Set(float64(s.Plan.Contested.Len()))
}

// result measures what a sync did in one family.
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
	if m.tableRules != nil {
		for _, t := range result.Tables {
			m.tableRules.WithLabelValues(family, t.Name).Set(float64(t.Rules))
			m.tableRulesWritten.WithLabelValues(family, t.Name).Set(float64(t.Written))
		}
	}
	if result.Err != nil {
		if m.syncFailures != nil {
			m.syncFailures.WithLabelValues(family).Inc()
		}
		if m.partialSyncFailures != nil && !result.Read {
			m.partialSyncFailures.WithLabelValues(family).Inc()
		}
		return
	}
	m.lastSynced.WithLabelValues(family).Set(seconds(s.Finished))
	m.programmed(result.Family, s)
}

// programmed measures how long it took from the change of pods to its being in force, for every slice that
// this sync brought to one family.
func (m *Metrics) programmed(family cluster.Family, s *proxy.Sync) {
	observer := m.networkProgramming.WithLabelValues(family.String())
	for _, change := range cluster.Changes(m.byFamily[family], s.After.Services) {
		for old, now := range sliceChanges(change.Before, change.After) {
			if now != nil && now.Triggered.After(m.config.Start) && (isOf(now, family) || isOf(old, family)) {
				observer.Observe(max(0, s.Finished.Sub(now.Triggered).Seconds()))
			}
		}
	}
	m.byFamily[family] = s.After.Services
}

// isOf tells whether a slice has endpoints of a family; all of its endpoints are of one.
func isOf(slice *cluster.EndpointSlice, family cluster.Family) bool {
	return slice != nil && len(slice.Endpoints) > 0 && cluster.FamilyOf(slice.Endpoints[0].Addr) == family
}

// pending counts what is known and not programmed yet.
func (m *Metrics) pending() changeCount {
	return countChanges(m.applied.Load().Services, m.config.Snapshot().Services)
}

// localKey is how noLocalEndpoints is told apart.
type localKey struct {
	family   cluster.Family
	external bool
}

// countNoLocal follows the plan with the number of Service ports that have endpoints, but none that their
// Local policy allows here.
func (m *Metrics) countNoLocal(p *plan.Plan) {
	for _, change := range cluster.Changes(m.counted, p.Services) {
		for port := range withoutLocal(change.Before) {
			m.noLocal[port.localKey]--
		}
		for port := range withoutLocal(change.After) {
			m.noLocal[port.localKey]++
		}
	}
	m.counted = p.Services
	for _, family := range m.config.Families {
		m.noLocalEndpoints.WithLabelValues(family.String(), "internal").Set(float64(m.noLocal[localKey{family, false}]))
		m.noLocalEndpoints.WithLabelValues(family.String(), "external").Set(float64(m.noLocal[localKey{family, true}]))
	}
}

// localPort is a port of a Service that a Local policy leaves without endpoints.
type localPort struct {
	localKey
	port string
}

// withoutLocal are such ports of one Service, each once however many addresses it has; s may be nil.
func withoutLocal(s *plan.Service) map[localPort]bool {
	var ports map[localPort]bool
	if s == nil {
		return nil
	}
	for _, route := range s.Routes {
		if route.Policy == cluster.PolicyLocal && route.Reason() == plan.NoLocalEndpoints {
			if ports == nil {
				ports = map[localPort]bool{}
			}
			ports[localPort{localKey{route.Frontend.Family(), route.Kind != plan.ClusterIP}, route.Port}] = true
		}
	}
	return ports
}

// changeCount is how much differs between two snapshots.
type changeCount struct {
	// services counts Services that say something else, slices EndpointSlices of Services.
	services, slices int
}

func countChanges(before, after cluster.Map[cluster.ServiceName, *cluster.Service]) changeCount {
	var n changeCount
	for _, change := range cluster.Changes(before, after) {
		if !change.Was || !change.Is || !change.Before.SameSpec(change.After) {
			n.services++
		}
		for range sliceChanges(change.Before, change.After) {
			n.slices++
		}
	}
	return n
}

// sliceChanges yields the slices that differ between two versions of a Service, either of which may be nil: as
// they were and as they are, nil where there was or is none.
func sliceChanges(before, after *cluster.Service) iter.Seq2[*cluster.EndpointSlice, *cluster.EndpointSlice] {
	olds, news := slicesOf(before), slicesOf(after)
	return func(yield func(old, now *cluster.EndpointSlice) bool) {
		for len(olds) > 0 || len(news) > 0 {
			var old, now *cluster.EndpointSlice
			if len(news) == 0 || len(olds) > 0 && olds[0].Name <= news[0].Name {
				old, olds = olds[0], olds[1:]
			}
			if len(news) > 0 && (old == nil || old.Name == news[0].Name) {
				now, news = news[0], news[1:]
			}
			if old != now && !yield(old, now) {
				return
			}
		}
	}
}

// slicesOf are the slices of a Service, sorted by name; none of none.
func slicesOf(s *cluster.Service) []*cluster.EndpointSlice {
	if s == nil {
		return nil
	}
	return s.Slices
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

// scraped is a gauge whose value is worked out when somebody asks.
type scraped struct {
	*metrics.Gauge
	value func() float64
}

// Collect sends the present value.
func (g *scraped) Collect(to chan<- prometheus.Metric) {
	g.Set(g.value())
	g.Gauge.Collect(to)
}
