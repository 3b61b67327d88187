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
			effect: "Serves spec.externalIPs of Services, with which any user who may write Services can capture others' traffic " +
				"(CVE-2020-8554). Turn it on only to migrate: docs/external-ips.md.",
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
			effect: "Leaves status.nodeInfo.kubeProxyVersion unset in the Node that is made from the machine (--manifests). If " +
				"off, it equals kubeletVersion, which that Node does not have either. In a cluster the kubelet writes the field.",
			end: "locked to true, then removed (KEP-4004)",
		},
		{name: DrainIPVSMode, specs: alpha(), end: mayChange,
			effect: "Established connections go on when this proxy takes over from Kubernetes' kube-proxy in ipvs mode: the virtual servers and " +
				"addresses that they use are removed when they have ended. Until then, pods and other machines reach the node's own ports, such as 22, " +
				"through these addresses, and a new connection from the port of one that has just ended may move or be reset. Without it, all are " +
				"removed at once.",
		},
		{name: FlowtableFastPath, specs: alpha(), end: mayChange,
			effect: "In nftables mode, forwards packets of long connections to Services with the annotation kube-proxy/fast-path: \"true\" by a " +
				"flowtable of the kernel (Linux 6.1 and later): docs/connections.md.",
		},
		{name: KeepTerminatingUDPFlows, specs: alpha(), end: mayChange,
			effect: "UDP flows of a Service with the annotation service.kubernetes.io/udp-connection-handling: PreserveDuringTermination stay " +
				"with a terminating endpoint until no EndpointSlice lists it, also if it does not serve any more (KEP-5989). New flows go elsewhere. " +
				"Without it, as in Kubernetes' kube-proxy, flows move when an endpoint is neither ready nor serving.",
			details: udpDetails,
		},
		{name: KubeProxyNFTablesLocalhostNodePorts, specs: alpha(), end: mayChange,
			effect: "In nftables mode, serves TCP NodePorts on loopback addresses if nodePortAddresses contains a loopback " +
				"range (such as localhost). Other NodePorts there are rejected.",
		},
		{name: LoadBalancerAlgorithms, specs: alpha(), end: mayChange,
			effect: "Honours the annotations kube-proxy/lb-algorithm of Services (random, round-robin, source-hash, maglev) and " +
				"kube-proxy/weight of EndpointSlices, and Cilium's of the same meaning: docs/balancing.md.",
		},
		{name: logsapi.LoggingAlphaOptions, effect: "Allows alpha logging options: split streams and their buffer size.", end: mayChange},
		{name: logsapi.LoggingBetaOptions, effect: "Allows beta logging options: format json.", end: becomesDefault},
		{name: ManagedFieldsOptOutClient, specs: alpha(), end: mayChange,
			effect: "Asks the API server to leave metadata.managedFields out of the objects that it sends (KEP-5958, the server's gate " +
				"ManagedFieldsOptOut, planned for 1.38). Other servers send whole objects.",
		},
		{name: metricsfeatures.NativeHistograms, effect: "Also exposes histograms in Prometheus' native format.", end: becomesDefault},
		{name: ResetGoneEndpoints, specs: alpha(), end: mayChange,
			effect: "Resets TCP connections to endpoints that no EndpointSlice lists any more, instead of letting clients hang for up to 15 minutes, " +
				"and rejects TCP by resets instead of ICMP errors. Lets SCTP clients of such endpoints begin anew.",
			details: resetDetails,
		},
		{name: ServiceLimits, specs: alpha(), end: mayChange,
			effect: "Bounds the connections of Services, new ones in a second and open ones, by the annotation kube-proxy/connection-limits " +
				"and for namespaces by connectionLimits in the configuration file: docs/limits.md.",
		},
	}
}

// udpDetails describes what KeepTerminatingUDPFlows leaves out.
const udpDetails = `Of KEP-5989, the metrics and the limit of 6 minutes are left out: to count preserved flows takes a walk of the connection tracking table
at each scrape, and the pod's own terminationGracePeriodSeconds limits how long its flows are preserved.`

// resetDetails describes what ResetGoneEndpoints does to each client.
const resetDetails = `An endpoint is gone when for half a second no EndpointSlice of any Service lists its address, in whatever condition: its pod is deleted, or
its node with all pods. Headless Services and those of other proxies (label service.kubernetes.io/service-proxy-name) do not count: they are
not watched. The entries of its connections are deleted from the connection tracking table then, so that their next packet is a new one:

| client | with the gate | without |
|---|---|---|
| sends, and other endpoints are left | another endpoint gets its packet, and resets the unknown connection; the reset comes from the Service's address | hangs until its own timeouts: some 15 minutes |
| sends, and no endpoint is left | the node resets the connection | hangs |
| on this node, in the host's network (the kubelet) | gets ECONNABORTED at once, also if it only waits | hangs |
| elsewhere, and only waits | nothing reaches it until it sends: use TCP keepalive (Linux' default is two hours), pings of HTTP/2 and gRPC, or read timeouts | hangs |
| still connects, its SYN is unanswered | its next SYN goes to another endpoint | its SYNs go to the same endpoint for 2 minutes |

These connections go on as without the gate:

* to an endpoint that is unready or terminates, or whose removal the proxy's guard against incomplete lists holds back (--relist-guard);
* of a Service that was deleted, and to endpoints that went while the proxy did not run;
* in iptables mode, to an address with traffic policy Local, when this node has no endpoint any more and others have: the node drops
  their packets. In nftables mode it resets them, and drops only new connections;
* of other clients than this node's own, if net.netfilter.nf_conntrack_tcp_loose is 0 (the default is 1): the kernel does not translate their packets.

A pod that runs on, but does not match the selector of any Service that counts any more, loses its connections. An API server that shuts down
removes its address from the Service kubernetes first: clients lose their connections to it while it still answers their last requests, and
connect to another one. At most 10,000 connections are reset in a second, half of them in each family if two are served. The metric serviceproxy_connections_to_gone_endpoints_reset_total
counts them, and the log has one line in 10 s. If the kernel was built without CONFIG_INET_DIAG_DESTROY, or CAP_NET_ADMIN is missing, one line
says so, and the node's own clients are reset at their next packet.

The entries of SCTP associations to an endpoint that is gone are deleted too, also if it went while the proxy did not run, so that a client
that begins anew from the same port (INIT) reaches another endpoint: without the gate its packets go to the gone one for as long as it sends
any. If the pod runs on, a working association ends, and its client does not learn it. An association with several addresses (multi-homing) uses
only the path through the Service's address: the kernel does not translate the addresses inside INIT, and packets to or from others meet no entry.`

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
