package findings

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// instead returns the manifest that replaces a Service with external IPs: the same Service without them, of type LoadBalancer
// if it needs an address for external clients. Fields that the API server sets are left out: it keeps them when the manifest
// is applied.
func instead(s *corev1.Service) string {
	written := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Annotations: maps.Clone(s.Annotations),
		},
		Spec: *s.Spec.DeepCopy(),
	}
	delete(written.Annotations, corev1.LastAppliedConfigAnnotation)
	spec := &written.Spec
	spec.ExternalIPs = nil
	var comment string
	switch {
	case unserved(s) != "":
		comment = fmt.Sprintf("# External IPs have no effect, because %s.\n", unserved(s))
		if spec.Type == corev1.ServiceTypeClusterIP {
			spec.ExternalTrafficPolicy = "" // the API server accepts it with external IPs only
		}
	case spec.Type == corev1.ServiceTypeLoadBalancer:
		comment = "# Clients use the address that status.loadBalancer.ingress acknowledges.\n"
	default:
		spec.Type = corev1.ServiceTypeLoadBalancer
		comment = fmt.Sprintf("# A controller for load balancers gives an address and acknowledges it in status.loadBalancer.ingress.\n"+
			"# To keep %s, ask for it as that controller's documentation says.\n", strings.Join(s.Spec.ExternalIPs, ", "))
	}
	if spec.ClusterIP != corev1.ClusterIPNone {
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	spec.HealthCheckNodePort = 0
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(written)
	if err != nil {
		return "" // a Service always converts
	}
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return ""
	}
	return comment + string(text)
}
