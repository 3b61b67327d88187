package metrics

import (
	"slices"

	"k8s.io/component-base/metrics"
)

// The namespaces of metrics: kube-proxy's and our own.
const (
	upstream = "kubeproxy"
	own      = "serviceproxy"
)

// metricSet holds all metrics.
type metricSet struct {
	syncDuration, fullSyncDuration, partialSyncDuration *metrics.HistogramVec
	networkProgramming                                  *metrics.HistogramVec
	lastSynced, lastQueued                              *metrics.GaugeVec
	endpointChanges, serviceChanges                     *metrics.Counter
	endpointsPending, servicesPending                   *scraped
	noLocalEndpoints                                    *metrics.GaugeVec
	healthz, livez                                      *metrics.CounterVec
	conntrackDuration                                   *metrics.HistogramVec
	conntrackDeleted                                    *metrics.CounterVec
	withExternalIPs                                     *metrics.GaugeVec
	// These are nil if the backend has no name for them, or does not count.
	syncFailures, partialSyncFailures, cleanupFailures *metrics.CounterVec
	tableRules, tableRulesWritten                      *metrics.GaugeVec
	invalidDropped, localhostAccepted                  *counted
	localhostRejected                                  *rejectedOnLocalhost
	localhostListeners                                 *metrics.GaugeVec
	localhostFailures                                  *metrics.CounterVec
	affinityFullness                                   *affinityFullness
	affinityRefused                                    *affinityRefused

	ownSet
}

// ownSet holds the metrics that upstream does not have.
type ownSet struct {
	rulesRepaired                 *metrics.CounterVec
	connectionsClosed             *metrics.CounterVec
	connectionsReset              *metrics.CounterVec
	elementsWritten, rulesWritten *metrics.CounterVec
	relistsHeld, configRefused    *metrics.Counter
	contested, configDiffers      *metrics.Gauge
	delayed, fastPathDevices      *metrics.Gauge
	invalidManifests              *scraped
	refused                       *metrics.GaugeVec
	waiting, watchFailing         *metrics.GaugeVec
	otherProxySeen                *metrics.GaugeVec
	broken                        *metrics.GaugeVec
	problems                      *problems
	// connections is nil unless wanted.
	connections *connections
	// limited is nil if the backend does not count.
	limited *limited
}

const (
	familyLabel   = "ip_family"
	policyLabel   = "traffic_policy"
	protocolLabel = "protocol"
	codeLabel     = "code"
	servedLabel   = "served"
	tableLabel    = "table"
	reasonLabel   = "reason"
	modeLabel     = "mode"
	resourceLabel = "resource"
	serverLabel   = "server"
	checkLabel    = "check"

	serviceNamespaceLabel = "service_namespace"
	serviceNameLabel      = "service_name"
	portLabel             = "port"
	endpointLabel         = "endpoint_address"
)

func newMetricSet(config *Config, pending func() changeCount) metricSet {
	names := config.Counters.Names
	return metricSet{
		affinityFullness: newAffinityFullness(config), affinityRefused: newAffinityRefused(config),
		syncDuration: histogram("sync_proxy_rules_duration_seconds", "Duration of syncs.", syncBuckets()),
		fullSyncDuration: histogram("sync_full_proxy_rules_duration_seconds",
			"Duration of syncs that had to read the kernel's state first.", syncBuckets()),
		partialSyncDuration: histogram("sync_partial_proxy_rules_duration_seconds",
			"Duration of syncs that wrote only what changed since the last one.", syncBuckets()),
		networkProgramming: histogram("network_programming_duration_seconds",
			"Time from a change of pods, as reported by their EndpointSlice, until it is programmed on this node.", programmingBuckets()),

		lastSynced: gauges(upstream, "sync_proxy_rules_last_timestamp_seconds",
			"When a sync last succeeded, in seconds since 1970.", familyLabel),
		lastQueued: gauges(upstream, "sync_proxy_rules_last_queued_timestamp_seconds",
			"When a sync was last queued, in seconds since 1970.", familyLabel),
		endpointChanges: counter(upstream, "sync_proxy_rules_endpoint_changes_total",
			"Programmed changes of EndpointSlices."),
		serviceChanges: counter(upstream, "sync_proxy_rules_service_changes_total",
			"Programmed changes of Services, apart from their endpoints."),
		endpointsPending: &scraped{
			Gauge: gauge(upstream, "sync_proxy_rules_endpoint_changes_pending", "EndpointSlices with changes that are not programmed yet."),
			value: func() float64 { return float64(pending().slices) },
		},
		servicesPending: &scraped{
			Gauge: gauge(upstream, "sync_proxy_rules_service_changes_pending",
				"Services with changes, apart from their endpoints, that are not programmed yet."),
			value: func() float64 { return float64(pending().services) },
		},
		noLocalEndpoints: gauges(upstream, "sync_proxy_rules_no_local_endpoints_total",
			"Ports of Services that have endpoints, but none on this node where their traffic policy is Local.", familyLabel, policyLabel),
		healthz: counters(upstream, "proxy_healthz_total", "Responses of /healthz, by HTTP status.", codeLabel),
		livez:   counters(upstream, "proxy_livez_total", "Responses of /livez, by HTTP status.", codeLabel),
		conntrackDuration: histogram("conntrack_reconciler_sync_duration_seconds",
			"Duration of searches of the connection tracking table for stale entries.", syncBuckets()),
		conntrackDeleted: counters(upstream, "conntrack_reconciler_deleted_entries_total",
			"Stale connection tracking entries that were deleted.", familyLabel),

		withExternalIPs: gauges(upstream, "services_with_external_ips",
			"Services with external IPs, by whether these are served (feature gate AllowServiceExternalIPs).", servedLabel),

		syncFailures: named(names.SyncFailures, "Failed syncs. The rules of the last successful sync stayed in force."),
		partialSyncFailures: named(names.PartialSyncFailures,
			"Failed syncs that wrote only changes. The next sync reads the kernel's state first."),
		localhostListeners: namedGauge(names.LocalhostListeners, "Node ports that the proxy listens on, on a loopback address.", familyLabel),
		localhostFailures:  named(names.LocalhostListenFailures, "Failed attempts to listen on a node port on a loopback address."),
		localhostRejected:  newRejectedOnLocalhost(config, names.LocalhostRejected),
		cleanupFailures:    named(names.CleanupFailures, "Failed removals of unused rules. Always 0, because they are removed in the transactions of syncs."),
		tableRules:         namedGauge(names.TableRules, "Rules of this proxy in a table.", familyLabel, tableLabel),
		tableRulesWritten:  namedGauge(names.TableRulesWritten, "Rules that the last sync wrote to a table.", familyLabel, tableLabel),
		invalidDropped: newCounted(config, names.InvalidDropped,
			"Packets that were dropped because conntrack considers them invalid.", config.Counters.InvalidDropped),
		localhostAccepted: newCounted(config, names.LocalhostAccepted,
			"Accepted connections to node ports on loopback addresses, counted by their first packet.", config.Counters.LocalhostAccepted),

		ownSet: newOwnSet(config),
	}
}

func newOwnSet(config *Config) ownSet {
	return ownSet{
		rulesRepaired:     counters(own, "rules_repaired_total", "External modifications of this proxy's rules that it repaired.", familyLabel),
		connectionsClosed: counters(own, "connections_closed_total", "Connections to this proxy's servers (healthz, health_check_node_ports, metrics) that it reset to make room for new ones.", serverLabel),
		connectionsReset:  counters(own, "connections_to_gone_endpoints_reset_total", "TCP connections that it reset because no EndpointSlice lists their endpoint any more (feature gate ResetGoneEndpoints).", familyLabel),
		elementsWritten:   counters(own, "elements_written_total", "Map and set elements added and deleted in the kernel.", familyLabel),
		rulesWritten:      counters(own, "rules_written_total", "Chains added, replaced and deleted in the kernel.", familyLabel),
		relistsHeld: counter(own, "relists_held_total",
			"Lists of the API server that were held back, because they would have removed nearly all endpoints."),
		configRefused: counter(own, "config_refused_total",
			"Invalid changes of the configuration file; the configuration in effect remains."),
		configDiffers: gauge(own, "config_differs",
			"1 if the configuration file is invalid or differs from the configuration in effect, as after a change of the ConfigMap; else 0."),
		otherProxySeen: gauges(own, "other_proxy_last_seen_timestamp_seconds",
			"When rules of another kube-proxy were last detected, in seconds since 1970, by its mode.", modeLabel),
		broken: gauges(own, "dataplane_broken",
			"1 if a check of --dataplane-canary fails: IPv4 and IPv6 (connections through the rules), settings (the kernel does not forward packets), firewall (a chain drops everything); else 0. Absent without --dataplane-canary.",
			checkLabel),
		refused: gauges(own, "refused_service_ports",
			"Ports of Services whose rules the kernel refuses: they keep their earlier rules, or are not served. Log and Events contain the cause.", familyLabel),
		waiting: gauges(own, "waiting",
			"1 for each thing that the proxy waits for: api_server, without whose first lists no Service is served; node, node_addresses, pod_cidrs, on which only a part depends; other_proxy, which has to end first, and other_proxy_not_serving if that one does not serve.",
			reasonLabel),
		watchFailing: gauges(own, "watch_failing",
			"1 while a resource cannot be listed or watched, and its last known state stays in force, by the reason: unreachable, untrusted, unauthorized, forbidden, missing, busy, failing, oversized or slow. 0 afterwards, absent before.",
			resourceLabel, reasonLabel),
		invalidManifests: &scraped{
			Gauge: gauge(own, "invalid_manifests",
				"1 if a manifest (--manifests) is invalid or cannot be read, so that what was valid before stays in use; else 0."),
			value: func() float64 {
				if config.InvalidManifests == nil || len(config.InvalidManifests()) == 0 {
					return 0
				}
				return 1
			},
		},
		delayed:     gauge(own, "services_delayed", "Services whose last change has waited for more than 5 seconds, because it is expensive and programmed in parts. They keep their earlier rules until then."),
		connections: newConnections(config),
		limited:     newLimited(config),
		problems:    newProblems(config),
		fastPathDevices: gauge(own, "fast_path_devices",
			"Devices between which connections can take the fast path; 0 if there is none (feature gate FlowtableFastPath)."),
		contested: gauge(own, "contested_frontends", "Addresses with protocol and port that several Services claim. One is served; the others have Events."),
	}
}

// all returns all metrics, for registration.
func (s *metricSet) all() []metrics.Registerable {
	all := []metrics.Registerable{
		s.syncDuration, s.fullSyncDuration, s.partialSyncDuration, s.networkProgramming,
		s.lastSynced, s.lastQueued,
		s.endpointChanges, s.serviceChanges, s.endpointsPending, s.servicesPending,
		s.noLocalEndpoints, s.healthz, s.livez, s.conntrackDuration, s.conntrackDeleted,
		s.withExternalIPs,
		s.rulesRepaired, s.connectionsClosed, s.connectionsReset, s.elementsWritten, s.rulesWritten, s.relistsHeld, s.configRefused, s.configDiffers, s.contested, s.delayed, s.fastPathDevices, s.invalidManifests,
		s.refused,
		s.waiting, s.watchFailing, s.otherProxySeen, s.broken, s.problems,
	}
	for _, c := range []*metrics.CounterVec{s.syncFailures, s.partialSyncFailures, s.cleanupFailures, s.localhostFailures} {
		if c != nil {
			all = append(all, c)
		}
	}
	for _, g := range []*metrics.GaugeVec{s.tableRules, s.tableRulesWritten, s.localhostListeners} {
		if g != nil {
			all = append(all, g)
		}
	}
	for _, c := range []*counted{s.invalidDropped, s.localhostAccepted} {
		if c != nil {
			all = append(all, c)
		}
	}
	if s.localhostRejected != nil {
		all = append(all, s.localhostRejected)
	}
	if s.affinityFullness != nil {
		all = append(all, s.affinityFullness, s.affinityRefused)
	}
	if s.connections != nil {
		all = append(all, s.connections, s.connections.failures)
	}
	if s.limited != nil {
		all = append(all, s.limited)
	}
	return all
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

func histogram(name, help string, buckets []float64) *metrics.HistogramVec {
	return metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: upstream, Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA,
	}, []string{familyLabel})
}

func counters(namespace, name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

// named returns a counter by family; nil if the backend has no name for it.
func named(name, help string) *metrics.CounterVec {
	if name == "" {
		return nil
	}
	return counters(upstream, name, help, familyLabel)
}

// namedGauge returns a gauge; nil if the backend has no name for it.
func namedGauge(name, help string, labels ...string) *metrics.GaugeVec {
	if name == "" {
		return nil
	}
	return gauges(upstream, name, help, labels...)
}

func counter(namespace, name, help string) *metrics.Counter {
	return metrics.NewCounter(&metrics.CounterOpts{Namespace: namespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}

func gauges(namespace, name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: namespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

func gauge(namespace, name, help string) *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{Namespace: namespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}
