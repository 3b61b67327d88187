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
	// (CVE-2020-8554). It gives operators time to migrate, and will be removed together with the feature.
	AllowServiceExternalIPs featuregate.Feature = "AllowServiceExternalIPs"

	// DisableNodeKubeProxyVersion leaves status.nodeInfo.kubeProxyVersion of a Node unset (KEP-4004). Nothing reads it here: the kubelet writes
	// the field, and its gate of the same name decides.
	DisableNodeKubeProxyVersion featuregate.Feature = "DisableNodeKubeProxyVersion"

	// DrainIPVSMode keeps what established connections use of Kubernetes' kube-proxy in ipvs mode until they have ended, at the
	// latest 24 hours after the proxy's last start.
	DrainIPVSMode featuregate.Feature = "DrainIPVSMode"

	// FlowtableFastPath honours the annotation cluster.AnnotationFastPath of Services.
	FlowtableFastPath featuregate.Feature = "FlowtableFastPath"

	// KeepTerminatingUDPFlows honours the annotation cluster.AnnotationUDPConnectionHandling of Services (KEP-5989).
	KeepTerminatingUDPFlows featuregate.Feature = "KeepTerminatingUDPFlows"

	// KubeProxyNFTablesLocalhostNodePorts serves TCP NodePorts on loopback addresses in nftables mode if
	// nodePortAddresses contains a loopback range.
	KubeProxyNFTablesLocalhostNodePorts featuregate.Feature = "KubeProxyNFTablesLocalhostNodePorts"

	// LoadBalancerAlgorithms honours the annotations cluster.AnnotationAlgorithm of Services and cluster.AnnotationWeight of EndpointSlices.
	LoadBalancerAlgorithms featuregate.Feature = "LoadBalancerAlgorithms"

	// ManagedFieldsOptOutClient asks the API server to leave metadata.managedFields out of its answers. It has the name of
	// KEP-5958 for clients; the server's gate is ManagedFieldsOptOut.
	ManagedFieldsOptOutClient featuregate.Feature = "ManagedFieldsOptOutClient"

	// ResetGoneEndpoints resets TCP connections to endpoints that no EndpointSlice lists any more, and deletes the entries of SCTP ones.
	ResetGoneEndpoints featuregate.Feature = "ResetGoneEndpoints"

	// ServiceLimits bounds the connections of Services: cluster.AnnotationConnectionLimits and connectionLimits.
	ServiceLimits featuregate.Feature = "ServiceLimits"
)

// Result is the result of reading a featureGates map or the flag --feature-gates.
type Result struct {
	// Gate holds the values.
	Gate featuregate.MutableFeatureGate
	// Warnings contains one line for each gate that was set but has no effect, or is deprecated.
	Warnings []string
	// Errors contains the errors of single gates, by name.
	Errors map[string]error
}

// newGate returns a registry with all features of this proxy at their defaults.
func newGate() featuregate.MutableVersionedFeatureGate {
	gate := featuregate.NewFeatureGate()
	err := errors.Join(
		gate.AddVersioned(specs()),
		logsapi.AddFeatureGates(gate),
		metricsfeatures.AddFeatureGates(gate),
		zpagesfeatures.AddFeatureGates(gate),
	)
	if err != nil {
		panic(fmt.Sprintf("registering feature gates: %v", err))
	}
	return gate
}

// Read sets gates from a map. A gate of Kubernetes that this proxy does not have causes a warning, an unknown name an
// error.
func Read(set map[string]bool) Result { return readInto(newGate(), set) }

// readInto sets gates of a registry.
func readInto(gate featuregate.MutableVersionedFeatureGate, set map[string]bool) Result {
	result := Result{Gate: gate, Errors: map[string]error{}}
	known := gate.GetAll()
	needed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		spec, ok := known[featuregate.Feature(name)]
		switch {
		case !ok && knownToKubernetes(name):
			result.Warnings = append(result.Warnings, fmt.Sprintf("feature gate %s has no effect: it is a feature gate of Kubernetes that this proxy does not use", name))
		case !ok:
			result.Errors[name] = fmt.Errorf("unknown feature gate of this proxy and of Kubernetes%s", suggestion(name, known))
		case spec.LockToDefault && spec.Default != set[name]:
			result.Errors[name] = fmt.Errorf("this feature gate is locked to %t", spec.Default)
		default:
			if spec.PreRelease == featuregate.Deprecated && set[name] != spec.Default {
				result.Warnings = append(result.Warnings, fmt.Sprintf("feature gate %s is deprecated; default %t; planned end: %s",
					name, spec.Default, find(featuregate.Feature(name)).end))
			}
			needed[name] = set[name]
		}
	}
	// Warnings already contains what component-base would log.
	setter := gate.(featuregate.MutableFeatureGateWithLogger)
	if err := setter.SetFromMapWithLogger(logr.Discard(), needed); err != nil {
		result.Errors[""] = err
	}
	return result
}

// kubernetesGates contains the names of all feature gates of Kubernetes 1.20 to 1.37 and of client-go, one per line,
// including those that have graduated or were removed.
//
//go:embed kubernetes.txt
var kubernetesGates string

// knownToKubernetes reports whether a component of Kubernetes has, or had, a gate of this name.
func knownToKubernetes(name string) bool {
	_, found := slices.BinarySearch(strings.Fields(kubernetesGates), name)
	return found
}

// suggestion suggests a gate of this proxy or Kubernetes whose name differs only in case, or a gate of this proxy of
// which the name is a prefix.
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
