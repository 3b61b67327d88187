package synthetic

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// object is implemented by all objects here.
type object interface {
	runtime.Object
	metav1.Object
	// Size and MarshalToSizedBuffer are the generated protobuf code's.
	Size() int
	MarshalToSizedBuffer(b []byte) (int, error)
}

// resource is a kind's plural name, as used in paths.
type resource string

// The resources of a Service.
const (
	services       resource = "services"
	endpointSlices resource = "endpointslices"
)

// kind is one kind of objects and its path.
type kind struct {
	resource
	prefix  string // of the path
	version schema.GroupVersion
	name    string // of the kind
	// empty is an object of the kind without content.
	empty func() object
	// of returns an object that belongs to a Service; nil if the kind has none.
	of func(s *service, slice int) object
	// few are all objects of a kind that has few of them.
	few func(v *view) []object
}

func (k *kind) path() string { return k.prefix + string(k.resource) }

func serviceKind() *kind {
	return &kind{
		resource: services, prefix: "/api/v1/", version: corev1.SchemeGroupVersion, name: "Service",
		empty: func() object { return &corev1.Service{} },
		of:    func(s *service, _ int) object { return s.object() },
	}
}

func endpointSliceKind() *kind {
	return &kind{
		resource: endpointSlices, prefix: "/apis/discovery.k8s.io/v1/", version: discoveryv1.SchemeGroupVersion, name: "EndpointSlice",
		empty: func() object { return &discoveryv1.EndpointSlice{} },
		of:    func(s *service, slice int) object { return s.slice(slice) },
	}
}

func nodeKind() *kind {
	return &kind{
		resource: "nodes", prefix: "/api/v1/", version: corev1.SchemeGroupVersion, name: "Node",
		empty: func() object { return &corev1.Node{} },
		few:   func(v *view) []object { return []object{v.nodeObject()} },
	}
}

func serviceCIDRKind() *kind {
	return &kind{
		resource: "servicecidrs", prefix: "/apis/networking.k8s.io/v1/", version: networkingv1.SchemeGroupVersion, name: "ServiceCIDR",
		empty: func() object { return &networkingv1.ServiceCIDR{} },
		few: func(*view) []object {
			return []object{&networkingv1.ServiceCIDR{
				ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", ResourceVersion: "1"},
				Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{ServiceCIDR}},
			}}
		},
	}
}

// kinds returns all kinds that are served.
func kinds() []*kind {
	return []*kind{serviceKind(), endpointSliceKind(), nodeKind(), serviceCIDRKind()}
}

// each visits the objects of a kind starting with the n-th, each with the number at which to continue. It ends when visit
// returns false.
func (v *view) each(k *kind, from int, visit func(o object, next int) bool) {
	if k.few != nil {
		for i, o := range k.few(v) {
			if i >= from && !visit(o, i+1) {
				return
			}
		}
		return
	}
	last := v.size.Services
	for number := range v.changed {
		last = max(last, number+1)
	}
	// The position of a slice combines the number of its Service and its index in the Service.
	const places = 1 << 12
	for number := from / places; number < last; number++ {
		s := v.at(number)
		if s == nil {
			continue
		}
		for piece := range v.pieces(k, s) {
			at := number*places + piece
			if at < from {
				continue
			}
			o := v.ready(k, number, piece)
			if o == nil {
				o = k.of(s, piece)
			}
			if !visit(o, at+1) {
				return
			}
		}
	}
}

// pieces returns the number of objects of a kind that belong to a Service.
func (v *view) pieces(k *kind, s *service) int {
	if k.resource == endpointSlices {
		return s.slices()
	}
	return 1
}

// Name returns the namespace and name of a Service. There are few namespaces.
func Name(number int) (namespace, name string) {
	return fmt.Sprintf("team-%02d", number%50), fmt.Sprintf("service-%06d", number)
}

// meta returns the metadata that all objects of a Service share.
func (s *service) meta(manager, fields string, version int64) metav1.ObjectMeta {
	namespace, name := Name(s.number)
	born := metav1.Time{Time: time.Unix(1_760_000_000+int64(s.number), 0)}
	return metav1.ObjectMeta{
		Name: name, Namespace: namespace, ResourceVersion: strconv.FormatInt(version, 10), Generation: 1,
		UID:               types.UID(fmt.Sprintf("6f1e7c1a-0000-4000-8000-%012x", s.number)),
		CreationTimestamp: born,
		Labels:            map[string]string{"app": name, "app.kubernetes.io/managed-by": "Helm"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &born,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}},
	}
}

// The managed fields of objects written by kubectl and the EndpointSlice controller.
const (
	serviceFields = `{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:app.kubernetes.io/managed-by":{}}},"f:spec":{` +
		`"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},` +
		`"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}`
	sliceFields = `{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:annotations":{".":{},` +
		`"f:endpoints.kubernetes.io/last-change-trigger-time":{}},"f:generateName":{},"f:labels":{".":{},"f:app":{},` +
		`"f:endpointslice.kubernetes.io/managed-by":{},"f:kubernetes.io/service-name":{}},"f:ownerReferences":{".":{},` +
		`"k:{\"uid\":\"6f1e7c1a-0000-4000-8000-000000000000\"}":{}}},"f:ports":{}}`
)

func (s *service) object() *corev1.Service {
	o := &corev1.Service{ObjectMeta: s.meta("kubectl-client-side-apply", serviceFields, s.created)}
	vip := VIP(s.number).Addr().String()
	o.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: vip, ClusterIPs: []string{vip},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		SessionAffinity:       corev1.ServiceAffinityNone,
		Selector:              map[string]string{"app": o.Name},
	}
	o.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: s.protocol, Port: ServicePort, TargetPort: intstr.FromInt32(EndpointPort)}}
	return o
}

func (s *service) slice(number int) *discoveryv1.EndpointSlice {
	meta := s.meta("kube-controller-manager", sliceFields, s.changed)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: meta.Name, UID: meta.UID,
		Controller: new(true), BlockOwnerDeletion: new(true)}
	meta.OwnerReferences = []metav1.OwnerReference{owner}
	meta.Labels[discoveryv1.LabelServiceName] = meta.Name
	meta.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	meta.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-11-21T10:00:00Z"}
	meta.GenerateName = meta.Name + "-"
	meta.Name += fmt.Sprintf("-%05x", (s.number*maxSliceEndpoints+number)*2654435761&0xfffff)
	o := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	o.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(s.protocol), Port: new(int32(EndpointPort))}}
	yes, no := new(true), new(false)
	endpoints := s.endpoints[number*maxSliceEndpoints:]
	for _, n := range endpoints[:min(len(endpoints), maxSliceEndpoints)] {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{endpointAddr(n).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: no},
			NodeName:   new(numbered("node-", 0x1000+n%5000, 5)),
			Zone:       new(numbered("zone-", n%3, 1)),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: meta.Namespace,
				Name: numbered(meta.GenerateName+"5d8c7b9f4-", n, 5),
				UID:  types.UID(numbered("0c2b6c5e-0000-4000-8000-0000", n, 8))},
		})
	}
	return o
}

// numbered appends the last hexadecimal digits of a number to a name. It is faster than Sprintf.
func numbered(name string, n uint32, digits int) string {
	const hex = "0123456789abcdef"
	b := append(make([]byte, 0, len(name)+digits), name...)
	for digit := digits - 1; digit >= 0; digit-- {
		b = append(b, hex[n>>(4*digit)&15])
	}
	return string(b)
}

func (v *view) nodeObject() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: v.node, ResourceVersion: "1", UID: "8c9e2a70-0000-4000-8000-000000000001",
			Labels: map[string]string{corev1.LabelHostname: v.node, corev1.LabelTopologyZone: "zone-0"}},
		Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "172.18.0.11"}, {Type: corev1.NodeHostName, Address: v.node},
		}},
	}
}
