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
			effect: "No effect: the kubelet writes status.nodeInfo.kubeProxyVersion, and its gate of this name decides.",
			end:    "locked to true, then removed (KEP-4004)",
		},
		{name: DrainIPVSMode, specs: alpha(), end: mayChange,
			effect: "After a take-over from ipvs mode, the proxy removes virtual servers and addresses only when no established connection uses them, at the " +
				"latest 24 hours after its last start. Until then, pods and other machines reach the node's own ports, such as 22, through " +
				"these addresses, and a new connection from the port of one that has just ended may be reset.",
		},
		{name: FlowtableFastPath, specs: alpha(), end: mayChange,
			effect: "In nftables mode, a flowtable (Linux 6.1 and later) forwards packets of long connections to annotated Services, or to all with " +
				"nftables.fastPath: All. See docs/connections.md.",
		},
		{name: KeepTerminatingUDPFlows, specs: alpha(), end: mayChange,
			effect: "UDP flows of a Service with the annotation service.kubernetes.io/udp-connection-handling: PreserveDuringTermination stay " +
				"with a terminating endpoint until no EndpointSlice lists it, even if it no longer serves (KEP-5989, without its metrics and its " +
				"limit of 6 minutes). Other flows move when their endpoint is neither ready nor serving.",
		},
		{name: KubeProxyNFTablesLocalhostNodePorts, specs: alpha(), end: mayChange,
			effect: "In nftables mode, serves TCP NodePorts on loopback addresses in nodePortAddresses (such as localhost), and rejects others there.",
		},
		{name: LoadBalancerAlgorithms, specs: alpha(), end: mayChange,
			effect: "Annotations choose how Services balance (round-robin, source-hash, maglev) and the weights of endpoints: docs/balancing.md.",
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
				"resets instead of ICMP errors. SCTP clients of such endpoints can start again.",
		},
		{name: ServiceLimits, specs: alpha(), end: mayChange,
			effect: "Limits the connections of Services by an annotation, and by connectionLimits in the configuration file for namespaces: docs/limits.md.",
		},
	}
}

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
	Name string `json:"name"`
	// Stage is alpha, beta, GA or deprecated.
	Stage   string `json:"stage"`
	Default bool   `json:"default"`
	// Effect describes what the gate does, End when it is planned to be locked or removed.
	Effect string `json:"effect"`
	End    string `json:"plannedEnd"`
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
		all = append(all, Description{Name: string(name), Stage: stage, Default: spec.Default, Effect: r.effect, End: r.end})
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
