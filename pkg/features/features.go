package features

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	zpagesfeatures "k8s.io/component-base/zpages/features"
)

const (
	// AllowServiceExternalIPs serves spec.externalIPs of Services, which any user who may write Services can set
	// (CVE-2020-8554). For operators who need time to move away; the gate goes, with what it allows, later.
	AllowServiceExternalIPs featuregate.Feature = "AllowServiceExternalIPs"

	// DisableNodeKubeProxyVersion leaves status.nodeInfo.kubeProxyVersion unset in every Node that this project
	// writes or makes up itself. Off, the field equals kubeletVersion.
	DisableNodeKubeProxyVersion featuregate.Feature = "DisableNodeKubeProxyVersion"

	// KubeProxyNFTablesLocalhostNodePorts serves TCP NodePorts on loopback addresses in nftables mode, where
	// nodePortAddresses names a loopback range.
	KubeProxyNFTablesLocalhostNodePorts featuregate.Feature = "KubeProxyNFTablesLocalhostNodePorts"
)

// Gates is what the gates say, read once.
type Gates struct {
	AllowServiceExternalIPs             bool
	DisableNodeKubeProxyVersion         bool
	KubeProxyNFTablesLocalhostNodePorts bool

	// ComponentStatusz and ComponentFlagz serve /statusz and /flagz.
	ComponentStatusz bool
	ComponentFlagz   bool
	// NativeHistograms exposes histograms in Prometheus' native form too.
	NativeHistograms bool
	// ContextualLogging lets loggers carry values of their caller.
	ContextualLogging bool
}

// Result is what reading a featureGates map or the flag --feature-gates gave.
type Result struct {
	// Gates is what the gates say.
	Gates Gates
	// Gate is the same for component-base's packages, which want to ask.
	Gate featuregate.FeatureGate
	// Warnings names gates that were set and have no effect here, or are on their way out; one line each.
	Warnings []string
	// Errors tells what is wrong with single gates, by name.
	Errors map[string]error
}

// New returns a gate with all features of this proxy registered at their defaults.
func New() featuregate.MutableVersionedFeatureGate {
	gate := featuregate.NewFeatureGate()
	err := errors.Join(
		gate.AddVersioned(own()),
		logsapi.AddFeatureGates(gate),
		metricsfeatures.AddFeatureGates(gate),
		zpagesfeatures.AddFeatureGates(gate),
	)
	if err != nil {
		panic(fmt.Sprintf("feature gates contradict each other: %v", err))
	}
	return gate
}

// own are the features that this proxy defines or gives a default of its own.
func own() map[featuregate.Feature]featuregate.VersionedSpecs {
	return map[featuregate.Feature]featuregate.VersionedSpecs{
		AllowServiceExternalIPs: {
			{Version: version.MajorMinor(1, 0), Default: true, PreRelease: featuregate.GA},
			{Version: version.MajorMinor(1, 36), Default: false, PreRelease: featuregate.Deprecated},
		},
		DisableNodeKubeProxyVersion: {
			{Version: version.MajorMinor(1, 29), Default: false, PreRelease: featuregate.Alpha},
			{Version: version.MajorMinor(1, 33), Default: true, PreRelease: featuregate.Deprecated},
		},
		KubeProxyNFTablesLocalhostNodePorts: {
			{Version: version.MajorMinor(1, 37), Default: false, PreRelease: featuregate.Alpha},
		},
	}
}

// Read reads a map of gates. A gate that Kubernetes knows and this proxy does not need gives a warning, a name that
// nobody knows an error.
func Read(set map[string]bool) Result {
	gate := New()
	result := Result{Errors: map[string]error{}}
	known := gate.GetAll()
	needed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		spec, ok := known[featuregate.Feature(name)]
		switch {
		case !ok && KnownToKubernetes(name):
			result.Warnings = append(result.Warnings, fmt.Sprintf("feature gate %s has no effect: Kubernetes knows it, this proxy has no use for it", name))
		case !ok:
			result.Errors[name] = fmt.Errorf("neither this proxy nor Kubernetes knows this feature gate%s", suggestion(name, known))
		case spec.LockToDefault && spec.Default != set[name]:
			result.Errors[name] = fmt.Errorf("this feature gate is locked to %t", spec.Default)
		default:
			if spec.PreRelease == featuregate.Deprecated && set[name] != spec.Default {
				result.Warnings = append(result.Warnings, fmt.Sprintf("feature gate %s is deprecated and will go away; its default is %t", name, spec.Default))
			}
			needed[name] = set[name]
		}
	}
	// With the global logger, component-base would say again what Warnings says.
	setter := gate.(featuregate.MutableFeatureGateWithLogger)
	if err := setter.SetFromMapWithLogger(logr.Discard(), needed); err != nil {
		result.Errors[""] = err
	}
	result.Gate = gate
	result.Gates = read(gate)
	return result
}

// read asks every gate once.
func read(gate featuregate.FeatureGate) Gates {
	return Gates{
		AllowServiceExternalIPs:             gate.Enabled(AllowServiceExternalIPs),
		DisableNodeKubeProxyVersion:         gate.Enabled(DisableNodeKubeProxyVersion),
		KubeProxyNFTablesLocalhostNodePorts: gate.Enabled(KubeProxyNFTablesLocalhostNodePorts),
		ComponentStatusz:                    gate.Enabled(zpagesfeatures.ComponentStatusz),
		ComponentFlagz:                      gate.Enabled(zpagesfeatures.ComponentFlagz),
		NativeHistograms:                    gate.Enabled(metricsfeatures.NativeHistograms),
		ContextualLogging:                   gate.Enabled(logsapi.ContextualLogging),
	}
}

// Description is what there is to say of one gate.
type Description struct {
	Name    string
	Stage   string // alpha, beta, GA or deprecated
	Default bool
	Effect  string
}

// Describe lists all gates of this proxy by name.
func Describe() []Description {
	var all []Description
	specs := New().GetAll()
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		spec := specs[name]
		stage := strings.ToLower(string(spec.PreRelease))
		if spec.PreRelease == featuregate.GA {
			stage = "GA"
		}
		all = append(all, Description{Name: string(name), Stage: stage, Default: spec.Default, Effect: effect(name)})
	}
	return all
}

// effect says what a gate switches.
func effect(name featuregate.Feature) string {
	return map[featuregate.Feature]string{
		"AllAlpha": "Sets every alpha gate that is not set itself.",
		"AllBeta":  "Sets every beta gate that is not set itself.",
		AllowServiceExternalIPs: "Serves spec.externalIPs of Services. Off, they are ignored in every respect, since any user who may write " +
			"Services could draw other people's traffic with them (CVE-2020-8554). On is for operators who need time.",
		DisableNodeKubeProxyVersion: "Leaves status.nodeInfo.kubeProxyVersion unset in every Node that this project writes or makes up, and clears " +
			"it where it was set. Off, it equals kubeletVersion.",
		KubeProxyNFTablesLocalhostNodePorts: "In nftables mode, serves TCP NodePorts on loopback addresses if nodePortAddresses names a loopback " +
			"range (localhost, or a CIDR within 127.0.0.0/8 or ::1).",
		zpagesfeatures.ComponentStatusz:  "Serves /statusz on the metrics server.",
		zpagesfeatures.ComponentFlagz:    "Serves /flagz on the metrics server.",
		metricsfeatures.NativeHistograms: "Exposes histograms in Prometheus' native form too.",
		logsapi.ContextualLogging:        "Lets log lines carry values of the code that called.",
		logsapi.LoggingAlphaOptions:      "Unlocks logging options of alpha quality: split streams and their buffers.",
		logsapi.LoggingBetaOptions:       "Unlocks logging options of beta quality: format json.",
	}[name]
}

// kubernetesGates are the names of all feature gates of Kubernetes 1.20 to 1.37, and of client-go, one a line: those
// that are in use somewhere and those that have graduated or gone.
//
//go:embed kubernetes.txt
var kubernetesGates string

// KnownToKubernetes tells whether some component of Kubernetes has, or had, a gate of this name.
func KnownToKubernetes(name string) bool {
	_, found := slices.BinarySearch(strings.Fields(kubernetesGates), name)
	return found
}

// suggestion names the gate that differs in the case of letters only.
func suggestion(name string, known map[featuregate.Feature]featuregate.FeatureSpec) string {
	names := strings.Fields(kubernetesGates)
	for feature := range known {
		names = append(names, string(feature))
	}
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return fmt.Sprintf("; did you mean %s?", n)
		}
	}
	return ""
}
