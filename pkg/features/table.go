package features

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	zpagesfeatures "k8s.io/component-base/zpages/features"
)

// row documents one gate. --help, docs/feature-gates.md, warnings and /flagz are generated from it.
type row struct {
	name featuregate.Feature
	// specs are the stage and default by version; nil for the gates that component-base defines.
	specs featuregate.VersionedSpecs
	// effect describes what the gate does, end when it is planned to be locked or removed.
	effect, end string
	// details are more Markdown about it, if one paragraph is not enough.
	details string
}

// The planned ends that several gates have.
const (
	staysSwitch    = "none"
	mayChange      = "may change in any version"
	becomesDefault = "locked once GA, as in Kubernetes"
)

// alpha returns the stages of a gate that came with Kubernetes 1.37.
func alpha() featuregate.VersionedSpecs {
	return featuregate.VersionedSpecs{{Version: version.MajorMinor(1, 37), Default: false, PreRelease: featuregate.Alpha}}
}

// table has a row for every gate of this proxy, sorted by name.
func table() []row {
	return []row{
		{name: "AllAlpha", effect: "Sets every alpha gate that is not set itself.", end: staysSwitch},
		{name: "AllBeta", effect: "Sets every beta gate that is not set itself.", end: staysSwitch},
		{
			name: AllowServiceExternalIPs,
			specs: featuregate.VersionedSpecs{
				{Version: version.MajorMinor(1, 0), Default: true, PreRelease: featuregate.GA},
				{Version: version.MajorMinor(1, 36), Default: false, PreRelease: featuregate.Deprecated},
			},
			effect: "Serves spec.externalIPs, with which any user who may write Services can capture others' traffic (CVE-2020-8554). Turn it on " +
				"only to migrate: docs/external-ips.md.",
			end: "locked to false when Kubernetes' is (planned for 1.40), removed with the feature (planned for 1.43)",
		},
		{name: zpagesfeatures.ComponentFlagz, effect: "Serves /flagz on the metrics server.", end: becomesDefault},
		{name: zpagesfeatures.ComponentStatusz, effect: "Serves /statusz on the metrics server.", end: becomesDefault},
		{name: logsapi.ContextualLogging, effect: "Adds values of the caller's context to log lines.", end: becomesDefault},
		{
			name: DisableNodeKubeProxyVersion,
			specs: featuregate.VersionedSpecs{
				{Version: version.MajorMinor(1, 29), Default: false, PreRelease: featuregate.Alpha},
				{Version: version.MajorMinor(1, 33), Default: true, PreRelease: featuregate.Deprecated},
			},
			effect: "Leaves status.nodeInfo.kubeProxyVersion unset in the Node that is made from the machine (--manifests). In a cluster the kubelet writes it.",
			end:    "locked to true, then removed (KEP-4004)",
		},
		{name: DrainIPVSMode, specs: alpha(), end: mayChange,
			effect: "After a take-over from ipvs mode, virtual servers and addresses that established connections use are removed only when these have " +
				"ended, at the latest after 24 hours. Until then, pods and other machines reach the node's own ports, such as 22, through these addresses, and a new connection from " +
				"the port of one that has just ended may be reset.",
		},
		{name: FlowtableFastPath, specs: alpha(), end: mayChange,
			effect: "In nftables mode, forwards packets of long connections to annotated Services, or with nftables.fastPath: All of all Services, by a " +
				"flowtable (Linux 6.1 and later): docs/connections.md.",
		},
		{name: KeepTerminatingUDPFlows, specs: alpha(), end: mayChange,
			effect: "UDP flows of a Service with the annotation service.kubernetes.io/udp-connection-handling: PreserveDuringTermination stay " +
				"with a terminating endpoint until no EndpointSlice lists it, also if it does not serve any more (KEP-5989, without its metrics and its " +
				"limit of 6 minutes). Otherwise flows move when an endpoint is neither ready nor serving.",
		},
		{name: KubeProxyNFTablesLocalhostNodePorts, specs: alpha(), end: mayChange,
			effect: "In nftables mode, serves TCP NodePorts on loopback addresses in nodePortAddresses (such as localhost). Others there are rejected.",
		},
		{name: LoadBalancerAlgorithms, specs: alpha(), end: mayChange,
			effect: "Lets annotations choose how Services balance (round-robin, source-hash, maglev) and what weights endpoints have: docs/balancing.md.",
		},
		{name: logsapi.LoggingAlphaOptions, effect: "Allows alpha logging options: split streams and their buffer size.", end: mayChange},
		{name: logsapi.LoggingBetaOptions, effect: "Allows beta logging options: format json.", end: becomesDefault},
		{name: ManagedFieldsOptOutClient, specs: alpha(), end: mayChange,
			effect: "Asks the API server to leave out metadata.managedFields (KEP-5958, the server's gate ManagedFieldsOptOut, planned for 1.38). Other " +
				"servers send whole objects.",
		},
		{name: metricsfeatures.NativeHistograms, effect: "Also exposes histograms in Prometheus' native format.", end: becomesDefault},
		{name: ResetGoneEndpoints, specs: alpha(), end: mayChange,
			effect: "Resets TCP connections to endpoints that no EndpointSlice lists any more, instead of letting clients hang, and rejects TCP by " +
				"resets instead of ICMP errors. Lets SCTP clients of such endpoints begin anew.",
			details: resetDetails,
		},
		{name: ServiceLimits, specs: alpha(), end: mayChange,
			effect: "Bounds the connections of Services by an annotation, and for namespaces by connectionLimits in the configuration file: docs/limits.md.",
		},
	}
}

// resetDetails describes what ResetGoneEndpoints does to each client.
const resetDetails = `An endpoint is gone when for half a second no EndpointSlice of any Service lists its address: its pod is deleted, or its node. Headless Services
and those of other proxies (label service.kubernetes.io/service-proxy-name) do not count. The entries of its connections are then deleted from the
connection tracking table, so that their next packet is a new one. Without the gate these clients hang, some 15 minutes:

| a client | |
|---|---|
| sends, and other endpoints are left | another endpoint gets its packet, and resets the connection, from the Service's address |
| sends, and no endpoint is left | the node resets the connection |
| on this node, in the host's network (the kubelet) | gets ECONNABORTED at once, also if it only waits |
| elsewhere, and only waits | learns nothing until it sends: use TCP keepalive, pings of HTTP/2 and gRPC, or read timeouts |
| still connects | its next SYN goes to another endpoint, not to the same one for 2 minutes |

These connections go on as without the gate:

* to an endpoint that is unready or terminates, or whose removal --relist-guard holds back;
* of a Service that was deleted, and to endpoints that went while the proxy did not run;
* in iptables mode, to an address with traffic policy Local, when only other nodes have endpoints;
* of other clients than this node's own, if net.netfilter.nf_conntrack_tcp_loose is 0 (the default is 1).

A pod that runs on, but that no Service selects any more, loses its connections. So does an API server that shuts down: it leaves the Service
kubernetes while it still answers its last requests. At most 10,000 connections are reset in a second. The metric
serviceproxy_connections_to_gone_endpoints_reset_total counts them, and the log has one line in 10 s. Without CONFIG_INET_DIAG_DESTROY or
CAP_NET_ADMIN, one line says so, and the node's own clients are reset at their next packet.

The entries of SCTP associations are deleted too, also if the endpoint went while the proxy did not run, so that a client that begins anew from
the same port (INIT) reaches another endpoint: without the gate its packets go to the gone one for as long as it sends any. If the pod runs on,
its association ends, and the client does not learn it. With several addresses (multi-homing) only the path through the Service's address works.`

// specs returns the specs of the rows that have any.
func specs() map[featuregate.Feature]featuregate.VersionedSpecs {
	own := map[featuregate.Feature]featuregate.VersionedSpecs{}
	for _, r := range table() {
		if r.specs != nil {
			own[r.name] = r.specs
		}
	}
	return own
}

// find returns the row of a gate; empty if it has none.
func find(name featuregate.Feature) row {
	all := table()
	if i := slices.IndexFunc(all, func(r row) bool { return r.name == name }); i >= 0 {
		return all[i]
	}
	return row{}
}

// Description documents one gate.
type Description struct {
	Name string
	// Stage is alpha, beta, GA or deprecated.
	Stage   string
	Default bool
	// Effect describes what the gate does, End when it is planned to be locked or removed.
	Effect, End string
	// Details are more Markdown about it, often "".
	Details string
}

// String returns the gate in one line, as in --help.
func (d Description) String() string {
	return fmt.Sprintf("%s=true|false (%s, default %t)", d.Name, d.Stage, d.Default)
}

// Describe returns all gates of this proxy, sorted by name.
func Describe() []Description {
	var all []Description
	registered := newGate().GetAll()
	for _, name := range slices.Sorted(maps.Keys(registered)) {
		spec, r := registered[name], find(name)
		stage := strings.ToLower(string(spec.PreRelease))
		if spec.PreRelease == featuregate.GA {
			stage = "GA"
		}
		all = append(all, Description{Name: string(name), Stage: stage, Default: spec.Default, Effect: r.effect, End: r.end, Details: r.details})
	}
	return all
}

// InForce returns all gates with their values, in the format of --feature-gates.
func (r *Result) InForce() string {
	var set []string
	for _, gate := range Describe() {
		set = append(set, fmt.Sprintf("%s=%t", gate.Name, r.Gate.Enabled(featuregate.Feature(gate.Name))))
	}
	return strings.Join(set, ",")
}
