package e2e

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// MeantFor returns the node that the DaemonSet controller created a pod for; empty for other pods.
func MeantFor(pod *corev1.Pod) string {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// Apart reports whether the scheduler keeps two pods off the same node, because a rule between pods of one of them says so.
func Apart(a, b *corev1.Pod) bool { return repels(a, b) || repels(b, a) }

// repels reports whether a pod keeps another one off its node. It panics for a rule that is not known here.
func repels(pod, other *corev1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil || pod.UID == other.UID {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(term corev1.PodAffinityTerm) bool {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err != nil || term.TopologyKey != corev1.LabelHostname {
			panic("a rule between pods that the tests do not know: " + term.String())
		}
		return selector.Matches(labels.Set(other.Labels))
	})
}
