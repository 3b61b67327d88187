package source

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SetDefaults sets the API server's defaults of the fields of a Service, Node or EndpointSlice that a proxy reads. It does not
// allocate addresses and ports.
func SetDefaults(object runtime.Object) {
	switch o := object.(type) {
	case *corev1.Service:
		defaultNamespace(&o.ObjectMeta)
		defaultServiceSpec(&o.Spec)
	case *corev1.Node:
		if len(o.Spec.PodCIDRs) == 0 && o.Spec.PodCIDR != "" {
			o.Spec.PodCIDRs = []string{o.Spec.PodCIDR}
		}
	case *discoveryv1.EndpointSlice:
		defaultNamespace(&o.ObjectMeta)
		for i := range o.Ports {
			setDefault(&o.Ports[i].Name, new(string))
			tcp := corev1.ProtocolTCP
			setDefault(&o.Ports[i].Protocol, &tcp)
		}
	}
}

func defaultNamespace(meta *metav1.ObjectMeta) {
	setDefault(&meta.Namespace, metav1.NamespaceDefault)
}

func defaultServiceSpec(spec *corev1.ServiceSpec) {
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	if spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	cluster := corev1.ServiceInternalTrafficPolicyCluster
	setDefault(&spec.InternalTrafficPolicy, &cluster)
	if spec.Type != corev1.ServiceTypeClusterIP || len(spec.ExternalIPs) > 0 {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		spec.ClusterIP = spec.ClusterIPs[0]
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	for i := range spec.Ports {
		setDefault(&spec.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// setDefault sets a field that has its type's zero value.
func setDefault[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }
