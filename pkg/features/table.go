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

// row is all there is to say of one gate. --help, docs/feature-gates.md, warnings and /flagz are made of it.
type row struct {
	name featuregate.Feature
	// specs are the stage and default since each version, of a gate that this proxy defines or gives a default of its
	// own; those of the others are component-base's.
	specs featuregate.VersionedSpecs
	// effect says what the gate switches, end what is planned for it.
	effect, end string
}

// What is planned for gates of one stage alike.
const (
	staysSwitch    = "stays: it switches others"
	mayChange      = "may change or go with any version"
	becomesDefault = "locked to its default once GA, as in Kubernetes"
)

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
			effect: "Serves spec.externalIPs of Services. Off, they are ignored in every respect, since any user who may write " +
				"Services could draw other people's traffic with them (CVE-2020-8554). On is for operators who need time: docs/external-ips.md.",
			end: "locked to false when Kubernetes' own default is (planned for 1.40), removed with what it allows (planned for 1.43)",
		},
		{name: zpagesfeatures.ComponentFlagz, effect: "Serves /flagz on the metrics server.", end: becomesDefault},
		{name: zpagesfeatures.ComponentStatusz, effect: "Serves /statusz on the metrics server.", end: becomesDefault},
		{name: logsapi.ContextualLogging, effect: "Lets log lines carry values of the code that called.", end: becomesDefault},
		{
			name: DisableNodeKubeProxyVersion,
			specs: featuregate.VersionedSpecs{
				{Version: version.MajorMinor(1, 29), Default: false, PreRelease: featuregate.Alpha},
				{Version: version.MajorMinor(1, 33), Default: true, PreRelease: featuregate.Deprecated},
			},
			effect: "Leaves status.nodeInfo.kubeProxyVersion unset in every Node that this project writes or makes up, and clears " +
				"it where it was set. Off, it equals kubeletVersion.",
			end: "locked to true, then removed; the field stays unset (KEP-4004)",
		},
		{
			name: KubeProxyNFTablesLocalhostNodePorts,
			specs: featuregate.VersionedSpecs{
				{Version: version.MajorMinor(1, 37), Default: false, PreRelease: featuregate.Alpha},
			},
			effect: "In nftables mode, serves TCP NodePorts on loopback addresses if nodePortAddresses names a loopback " +
				"range (localhost, or a CIDR within 127.0.0.0/8 or ::1). Other NodePorts there are rejected.",
			end: mayChange,
		},
		{name: logsapi.LoggingAlphaOptions, effect: "Unlocks logging options of alpha quality: split streams and their buffers.", end: mayChange},
		{name: logsapi.LoggingBetaOptions, effect: "Unlocks logging options of beta quality: format json.", end: becomesDefault},
		{name: metricsfeatures.NativeHistograms, effect: "Exposes histograms in Prometheus' native form too.", end: becomesDefault},
	}
}

// specs are those of the rows that have any.
func specs() map[featuregate.Feature]featuregate.VersionedSpecs {
	own := map[featuregate.Feature]featuregate.VersionedSpecs{}
	for _, r := range table() {
		if r.specs != nil {
			own[r.name] = r.specs
		}
	}
	return own
}

// find returns the row of a gate, empty if it has none.
func find(name featuregate.Feature) row {
	all := table()
	if i := slices.IndexFunc(all, func(r row) bool { return r.name == name }); i >= 0 {
		return all[i]
	}
	return row{}
}

// Description is what there is to say of one gate.
type Description struct {
	Name string
	// Stage is alpha, beta, GA or deprecated.
	Stage   string
	Default bool
	// Effect says what the gate switches, End what is planned for it.
	Effect, End string
}

// String is the gate in one line, as --help lists it.
func (d Description) String() string {
	return fmt.Sprintf("%s=true|false (%s, default %t)", d.Name, d.Stage, d.Default)
}

// Describe lists all gates of this proxy by name.
func Describe() []Description {
	var all []Description
	registered := newGate().GetAll()
	for _, name := range slices.Sorted(maps.Keys(registered)) {
		spec, told := registered[name], find(name)
		stage := strings.ToLower(string(spec.PreRelease))
		if spec.PreRelease == featuregate.GA {
			stage = "GA"
		}
		all = append(all, Description{Name: string(name), Stage: stage, Default: spec.Default, Effect: told.effect, End: told.end})
	}
	return all
}

// InForce lists all gates with the values that were read, as --feature-gates would set them.
func (r *Result) InForce() string {
	var set []string
	for _, gate := range Describe() {
		set = append(set, fmt.Sprintf("%s=%t", gate.Name, r.Gate.Enabled(featuregate.Feature(gate.Name))))
	}
	return strings.Join(set, ",")
}
