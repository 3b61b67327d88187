package metrics

import "k8s.io/component-base/metrics"

// metricSet holds the metrics that are updated by more than scrapes.
type metricSet struct {
	syncDuration, fullSyncDuration, partialSyncDuration *metrics.HistogramVec
	networkProgramming                                  *metrics.HistogramVec
	lastSynced, lastQueued                              *metrics.GaugeVec
	endpointChanges, serviceChanges                     *metrics.Counter
	noLocalEndpoints                                    *metrics.GaugeVec
	healthz, livez                                      *metrics.CounterVec
	conntrackDuration                                   *metrics.HistogramVec
	conntrackDeleted                                    *metrics.CounterVec
	withExternalIPs                                     *metrics.GaugeVec
	syncFailures, partialSyncFailures, cleanupFailures  *metrics.CounterVec
	tableRules, tableRulesWritten                       *metrics.GaugeVec
	localhostListeners                                  *metrics.GaugeVec
	localhostFailures                                   *metrics.CounterVec

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
	refused                       *metrics.GaugeVec
	waiting, watchFailing         *metrics.GaugeVec
	otherProxySeen                *metrics.GaugeVec
	broken                        *metrics.GaugeVec
	problems                      *problems
	// connections is nil if there is nothing to read.
	connections *connections
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

// newMetricSet makes the metrics, and adds them to r with those that are only read at scrapes.
func newMetricSet(r *registry, config *Config, pending func() changeCount) metricSet {
	r.addKernel(config)
	r.addPending(pending)
	names := config.Counters.Names
	return metricSet{
		syncDuration: r.histogram("sync_proxy_rules_duration_seconds", "Duration of syncs.", syncBuckets()),
		fullSyncDuration: r.histogram("sync_full_proxy_rules_duration_seconds",
			"Duration of syncs that had to read the kernel's state first.", syncBuckets()),
		partialSyncDuration: r.histogram("sync_partial_proxy_rules_duration_seconds",
			"Duration of syncs that wrote only what changed since the last one.", syncBuckets()),
		networkProgramming: r.histogram("network_programming_duration_seconds",
			"Time from a change of pods, as reported by their EndpointSlice, until it is programmed on this node.", programmingBuckets()),

		lastSynced: r.gauges(upstream, "sync_proxy_rules_last_timestamp_seconds",
			"When a sync last succeeded, in seconds since 1970.", familyLabel),
		lastQueued: r.gauges(upstream, "sync_proxy_rules_last_queued_timestamp_seconds",
			"When a sync was last queued, in seconds since 1970.", familyLabel),
		endpointChanges: r.counter(upstream, "sync_proxy_rules_endpoint_changes_total",
			"Programmed changes of EndpointSlices."),
		serviceChanges: r.counter(upstream, "sync_proxy_rules_service_changes_total",
			"Programmed changes of Services, apart from their endpoints."),
		noLocalEndpoints: r.gauges(upstream, "sync_proxy_rules_no_local_endpoints_total",
			"Ports of Services that have endpoints, but none on this node where their traffic policy is Local.", familyLabel, policyLabel),
		healthz: r.counters(upstream, "proxy_healthz_total", "Responses of /healthz, by HTTP status.", codeLabel),
		livez:   r.counters(upstream, "proxy_livez_total", "Responses of /livez, by HTTP status.", codeLabel),
		conntrackDuration: r.histogram("conntrack_reconciler_sync_duration_seconds",
			"Duration of searches of the connection tracking table for stale entries.", syncBuckets()),
		conntrackDeleted: r.counters(upstream, "conntrack_reconciler_deleted_entries_total",
			"Stale connection tracking entries that were deleted.", familyLabel),

		withExternalIPs: r.gauges(upstream, "services_with_external_ips",
			"Services with external IPs, by whether these are served (feature gate AllowServiceExternalIPs).", servedLabel),

		syncFailures: r.counters(upstream, names.SyncFailures, "Failed syncs. The rules of the last successful sync stayed in force.", familyLabel),
		partialSyncFailures: r.counters(upstream, names.PartialSyncFailures,
			"Failed syncs that wrote only changes. The next sync reads the kernel's state first.", familyLabel),
		localhostListeners: r.gauges(upstream, names.LocalhostListeners, "Node ports that the proxy listens on, on a loopback address.", familyLabel),
		localhostFailures:  r.counters(upstream, names.LocalhostListenFailures, "Failed attempts to listen on a node port on a loopback address.", familyLabel),
		cleanupFailures:    r.counters(upstream, names.CleanupFailures, "Failed removals of unused rules. Always 0, because they are removed in the transactions of syncs.", familyLabel),
		tableRules:         r.gauges(upstream, names.TableRules, "Rules of this proxy in a table.", familyLabel, tableLabel),
		tableRulesWritten:  r.gauges(upstream, names.TableRulesWritten, "Rules that the last sync wrote to a table.", familyLabel, tableLabel),

		ownSet: newOwnSet(r, config),
	}
}

func newOwnSet(r *registry, config *Config) ownSet {
	r.addManifests(config)
	return ownSet{
		rulesRepaired:     r.counters(own, "rules_repaired_total", "External modifications of this proxy's rules that it repaired.", familyLabel),
		connectionsClosed: r.counters(own, "connections_closed_total", "Connections to this proxy's servers (healthz, health_check_node_ports, metrics) that it reset to make room for new ones.", serverLabel),
		connectionsReset:  r.counters(own, "connections_to_gone_endpoints_reset_total", "TCP connections that it reset because no EndpointSlice lists their endpoint any more (feature gate ResetGoneEndpoints).", familyLabel),
		elementsWritten:   r.counters(own, "elements_written_total", "Map and set elements added and deleted in the kernel.", familyLabel),
		rulesWritten:      r.counters(own, "rules_written_total", "Chains added, replaced and deleted in the kernel.", familyLabel),
		relistsHeld: r.counter(own, "relists_held_total",
			"Lists of the API server that were held back, because they would have removed nearly all endpoints."),
		configRefused: r.counter(own, "config_refused_total",
			"Invalid changes of the configuration file; the configuration in effect remains."),
		configDiffers: r.gauge(own, "config_differs",
			"1 if the configuration file is invalid or differs from the configuration in effect, as after a change of the ConfigMap; else 0."),
		otherProxySeen: r.gauges(own, "other_proxy_last_seen_timestamp_seconds",
			"When rules of another kube-proxy were last detected, in seconds since 1970, by its mode.", modeLabel),
		broken: r.gauges(own, "dataplane_broken",
			"1 if a check of --dataplane-canary fails: IPv4 and IPv6 (connections through the rules), settings (the kernel does not forward packets), firewall (a chain drops everything); else 0. Absent without --dataplane-canary.",
			checkLabel),
		refused: r.gauges(own, "refused_service_ports",
			"Ports of Services whose rules the kernel refuses: they keep their earlier rules, or are not served. Log and Events contain the cause.", familyLabel),
		waiting: r.gauges(own, "waiting",
			"1 for each thing that the proxy waits for: api_server, without whose first lists no Service is served; node, node_addresses, pod_cidrs, on which only a part depends; other_proxy, which has to end first, and other_proxy_not_serving if that one does not serve.",
			reasonLabel),
		watchFailing: r.gauges(own, "watch_failing",
			"1 while a resource cannot be listed or watched, and its last known state stays in force, by the reason: unreachable, untrusted, unauthorized, forbidden, missing, busy, failing, oversized or slow. 0 afterwards, absent before.",
			resourceLabel, reasonLabel),
		delayed:     r.gauge(own, "services_delayed", "Services whose last change waits for more than 5 seconds, because it is expensive and programmed in parts. They keep their earlier rules until then."),
		connections: newConnections(r, config),
		problems:    newProblems(r, config),
		fastPathDevices: r.gauge(own, "fast_path_devices",
			"Devices between which connections can take the fast path; 0 if there is none (feature gate FlowtableFastPath)."),
		contested: r.gauge(own, "contested_frontends", "Addresses with protocol and port that several Services claim. One is served; the others have Events."),
	}
}

// addPending adds how much has changed that is not programmed yet.
func (r *registry) addPending(pending func() changeCount) {
	endpoints := r.gauge(upstream, "sync_proxy_rules_endpoint_changes_pending", "EndpointSlices with changes that are not programmed yet.")
	services := r.gauge(upstream, "sync_proxy_rules_service_changes_pending",
		"Services with changes, apart from their endpoints, that are not programmed yet.")
	r.onScrape(func() {
		changed := pending()
		endpoints.Set(float64(changed.slices))
		services.Set(float64(changed.services))
	}, endpoints, services)
}

// addManifests adds whether manifests are invalid.
func (r *registry) addManifests(config *Config) {
	invalid := r.gauge(own, "invalid_manifests",
		"1 if a manifest (--manifests) is invalid or cannot be read, so that what was valid before stays in use; else 0.")
	r.onScrape(func() { set(invalid, config.InvalidManifests != nil && len(config.InvalidManifests()) > 0) }, invalid)
}
