package manifests

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// invalid is an error in a field.
type invalid struct {
	field string
	err   error
}

// validator checks the rules of the API that matter to a proxy.
type validator struct {
	found []invalid
}

// validate validates an object that has its defaults. Of a lenient one, it leaves out the fields that the Builder ignores.
func validate(object runtime.Object, lenient bool) []invalid {
	v := &validator{}
	name := ""
	switch o := object.(type) {
	case *corev1.Service:
		v.names(&o.ObjectMeta, validation.IsDNS1123Label)
		v.service(&o.Spec)
		v.ingress(o.Status.LoadBalancer.Ingress)
	case *discoveryv1.EndpointSlice:
		v.names(&o.ObjectMeta, validation.IsDNS1123Subdomain)
		v.slice(o)
	case *corev1.Node:
		name = o.Name
		v.clusterWide(&o.ObjectMeta, "Nodes")
	case *networkingv1.ServiceCIDR:
		v.clusterWide(&o.ObjectMeta, "ServiceCIDRs")
		if len(o.Spec.CIDRs) == 0 {
			v.add("spec.cidrs", "at least one CIDR is required")
		}
	}
	ignored := unusable(name, object)
	if lenient {
		return slices.DeleteFunc(v.found, func(i invalid) bool { return hasField(ignored, i.field) })
	}
	for _, i := range ignored {
		if !hasField(v.found, i.field) {
			v.found = append(v.found, i)
		}
	}
	return v.found
}

func (v *validator) add(field, format string, args ...any) {
	v.found = append(v.found, invalid{field, fmt.Errorf(format, args...)})
}

// unusable returns the problems that the Builder finds in the object.
func unusable(nodeName string, object runtime.Object) []invalid {
	err := cluster.NewBuilder(nodeName).Update(func(u *cluster.Update) { Apply(u, []runtime.Object{object}) })
	if err == nil {
		return nil
	}
	var found []invalid
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var problem *cluster.Problem
		if !errors.As(err, &problem) {
			found = append(found, invalid{"", err})
			continue
		}
		field := problem.Field
		if field == "spec.clusterIPs[0]" { // most files have only spec.clusterIP
			field = "spec.clusterIP"
		}
		found = append(found, invalid{field, problem.Err})
	}
	return found
}

// hasField reports whether a field has an error.
func hasField(found []invalid, field string) bool {
	return slices.ContainsFunc(found, func(i invalid) bool { return i.field == field })
}

func (v *validator) names(meta *metav1.ObjectMeta, nameRule func(string) []string) {
	v.name("metadata.name", meta.Name, nameRule)
	v.name("metadata.namespace", meta.Namespace, validation.IsDNS1123Label)
}

func (v *validator) clusterWide(meta *metav1.ObjectMeta, kinds string) {
	v.name("metadata.name", meta.Name, validation.IsDNS1123Subdomain)
	if meta.Namespace != "" {
		v.add("metadata.namespace", "%s have no namespace; remove this field", kinds)
	}
}

func (v *validator) name(field, name string, rule func(string) []string) {
	if name == "" {
		v.add(field, "a name is required")
	} else if complaints := rule(name); len(complaints) > 0 {
		v.add(field, "%q: %s", name, strings.Join(complaints, "; "))
	}
}

// oneOf checks an enumerated value.
func oneOf[T ~string](v *validator, field string, value T, known ...T) {
	if !slices.Contains(known, value) {
		v.add(field, "%q is not one of %q", value, known)
	}
}

func (v *validator) service(spec *corev1.ServiceSpec) {
	oneOf(v, "spec.type", spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	oneOf(v, "spec.sessionAffinity", spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	if spec.InternalTrafficPolicy != nil {
		oneOf(v, "spec.internalTrafficPolicy", *spec.InternalTrafficPolicy,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	if spec.ExternalTrafficPolicy != "" {
		oneOf(v, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		return // the proxy reads no other field
	}
	v.clusterIPs(spec)
	if len(spec.Ports) == 0 && spec.ClusterIP != corev1.ClusterIPNone {
		v.add("spec.ports", "at least one port is required")
	}
	v.servicePorts(spec)
}

func (v *validator) clusterIPs(spec *corev1.ServiceSpec) {
	ips := spec.ClusterIPs
	switch {
	case spec.ClusterIP == "":
		v.add("spec.clusterIP", "is required, because there is no API server to allocate an address; use None for a headless Service")
	case ips[0] != spec.ClusterIP:
		v.add("spec.clusterIPs[0]", "%q differs from spec.clusterIP, which is %q", ips[0], spec.ClusterIP)
	case len(ips) > 2:
		v.add("spec.clusterIPs", "%d addresses; at most one of each family is allowed", len(ips))
	case len(ips) == 2 && netutils.IsIPv6String(ips[0]) == netutils.IsIPv6String(ips[1]):
		v.add("spec.clusterIPs[1]", "%s is of the same family as %s; at most one of each family is allowed", ips[1], ips[0])
	}
}

// portKey is unique among the ports of a Service or an EndpointSlice.
type portKey struct {
	protocol corev1.Protocol
	number   int32
}

func (v *validator) servicePorts(spec *corev1.ServiceSpec) {
	names, numbers, nodePorts := map[string]int{}, map[portKey]int{}, map[portKey]int{}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		at := userfile.Element("spec.ports", i)
		if len(spec.Ports) > 1 && port.Name == "" {
			v.add(at+".name", "is required, because there are several ports")
		} else if port.Name != "" {
			v.name(at+".name", port.Name, validation.IsDNS1123Label)
			unique(v, names, port.Name, at+".name")
		}
		unique(v, numbers, portKey{port.Protocol, port.Port}, at+".port")
		switch {
		case port.NodePort != 0 && spec.Type == corev1.ServiceTypeClusterIP:
			v.add(at+".nodePort", "a Service of type ClusterIP has no node ports; use type NodePort or LoadBalancer")
		case port.NodePort != 0:
			unique(v, nodePorts, portKey{port.Protocol, port.NodePort}, at+".nodePort")
		case spec.Type == corev1.ServiceTypeNodePort:
			v.add(at+".nodePort", "is required, because there is no API server to allocate a node port; usually 30000-32767")
		}
	}
}

// unique adds an error if an earlier item of the list has the same value.
func unique[K comparable](v *validator, seen map[K]int, value K, field string) {
	if first, twice := seen[value]; twice {
		v.add(field, "%v is already used by item %d", value, first)
		return
	}
	seen[value] = len(seen)
}

func (k portKey) String() string { return fmt.Sprintf("%d/%s", k.number, k.protocol) }

func (v *validator) ingress(ingress []corev1.LoadBalancerIngress) {
	for i := range ingress {
		if mode := ingress[i].IPMode; mode != nil {
			oneOf(v, userfile.Element("status.loadBalancer.ingress", i)+".ipMode", *mode,
				corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
		}
	}
}

func (v *validator) slice(slice *discoveryv1.EndpointSlice) {
	names := map[string]int{}
	for i, port := range slice.Ports {
		at := userfile.Element("ports", i)
		if *port.Name != "" {
			v.name(at+".name", *port.Name, validation.IsDNS1123Label)
		}
		unique(v, names, *port.Name, at+".name")
	}
}
