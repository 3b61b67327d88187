package features

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
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

	gate featuregate.MutableFeatureGate
}

// AddMetrics publishes every gate's stage and value as the metric kubernetes_feature_enabled.
func (r *Result) AddMetrics() { r.gate.AddMetrics() }

// newGate returns a gate with all features of this proxy registered at their defaults.
func newGate() featuregate.MutableVersionedFeatureGate {
	gate := featuregate.NewFeatureGate()
	err := errors.Join(
		gate.AddVersioned(specs()),
		logsapi.AddFeatureGates(gate),
		metricsfeatures.AddFeatureGates(gate),
		zpagesfeatures.AddFeatureGates(gate),
	)
	if err != nil {
		panic(fmt.Sprintf("feature gates contradict each other: %v", err))
	}
	return gate
}

// Read reads a map of gates. A gate that Kubernetes knows and this proxy does not need gives a warning, a name that
// nobody knows an error.
func Read(set map[string]bool) Result { return readInto(newGate(), set) }

// readInto sets the gates of a registry.
func readInto(gate featuregate.MutableVersionedFeatureGate, set map[string]bool) Result {
	result := Result{Errors: map[string]error{}}
	known := gate.GetAll()
	needed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		spec, ok := known[featuregate.Feature(name)]
		switch {
		case !ok && knownToKubernetes(name):
			result.Warnings = append(result.Warnings, fmt.Sprintf("feature gate %s has no effect: Kubernetes knows it, this proxy has no use for it", name))
		case !ok:
			result.Errors[name] = fmt.Errorf("neither this proxy nor Kubernetes knows this feature gate%s", suggestion(name, known))
		case spec.LockToDefault && spec.Default != set[name]:
			result.Errors[name] = fmt.Errorf("this feature gate is locked to %t", spec.Default)
		default:
			if spec.PreRelease == featuregate.Deprecated && set[name] != spec.Default {
				result.Warnings = append(result.Warnings, fmt.Sprintf("feature gate %s is deprecated; its default is %t, and its end: %s",
					name, spec.Default, find(featuregate.Feature(name)).end))
			}
			needed[name] = set[name]
		}
	}
	// With the global logger, component-base would say again what Warnings says.
	setter := gate.(featuregate.MutableFeatureGateWithLogger)
	if err := setter.SetFromMapWithLogger(logr.Discard(), needed); err != nil {
		result.Errors[""] = err
	}
	result.Gate, result.gate = gate, gate
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

// kubernetesGates are the names of all feature gates of Kubernetes 1.20 to 1.37, and of client-go, one a line: those
// that are in use somewhere and those that have graduated or gone.
//
//go:embed kubernetes.txt
var kubernetesGates string

// knownToKubernetes tells whether some component of Kubernetes has, or had, a gate of this name.
func knownToKubernetes(name string) bool {
	_, found := slices.BinarySearch(strings.Fields(kubernetesGates), name)
	return found
}

// suggestion names the gate that differs in the case of letters only, or of this proxy's the one that the name is the
// beginning of.
func suggestion(name string, known map[featuregate.Feature]featuregate.FeatureSpec) string {
	var names []string
	for feature := range known {
		names = append(names, string(feature))
	}
	slices.Sort(names)
	for _, n := range append(names, strings.Fields(kubernetesGates)...) {
		if strings.EqualFold(n, name) {
			return fmt.Sprintf("; did you mean %s?", n)
		}
	}
	for _, n := range names {
		if len(name) > len(n)/2 && strings.HasPrefix(strings.ToLower(n), strings.ToLower(name)) {
			return fmt.Sprintf("; did you mean %s?", n)
		}
	}
	return ""
}
