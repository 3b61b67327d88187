package apiserver

import (
	"iter"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-11a05479/kube-proxy/pkg/apiclient"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// resource is one kind of objects: how to request it, and how to pass it to the Builder.
type resource struct {
	apiclient.Resource
	// fields and labels are selectors.
	fields, labels string
	// reads are the paths of all fields that set or this package reads, as in newMask. Others are not decoded from protobuf.
	reads []string
	// spare are objects whose memory may be used for others.
	spare sync.Pool
	// decode decodes an object from protobuf. newLean sets it.
	decode     func(data []byte) (runtime.Object, error)
	namespaced bool
	// optional resources may be missing or forbidden: a proxy works without them.
	optional bool

	set    func(u *cluster.Update, object any)
	remove func(u *cluster.Update, name cache.ObjectName)
	// miss is called instead of remove for an object that a list lacks; nil if that means the same.
	miss  func(u *cluster.Update, name cache.ObjectName)
	known func(u *cluster.Update) iter.Seq[cache.ObjectName]
	// endpoints returns the number of endpoints that are lost with an object; nil if there are none.
	endpoints func(u *cluster.Update, name cache.ObjectName) int
}

// fieldWithClusterIP selects Services that are not headless.
const fieldWithClusterIP = "spec.clusterIP!=" + corev1.ClusterIPNone

// resources returns the resources that a proxy on the node of that name watches.
func resources(nodeName string) []*resource {
	return []*resource{services(), endpointSlices(), nodes(nodeName), serviceCIDRs()}
}

// reads adds to the paths of fields those that are read of objects of all kinds.
func reads(paths ...string) []string {
	for _, annotation := range cluster.Annotations() {
		paths = append(paths, "metadata.annotations."+annotation)
	}
	return append(paths, "metadata.namespace", "metadata.name", "metadata.uid", "metadata.resourceVersion", "metadata.creationTimestamp",
		"metadata.deletionTimestamp", "metadata.annotations."+metav1.InitialEventsAnnotationKey)
}

func services() *resource {
	name := func(n cache.ObjectName) cluster.ServiceName { return cluster.ServiceName(n) }
	return &resource{
		Resource: apiclient.Services, namespaced: true,
		fields: fieldWithClusterIP, labels: "!" + cluster.LabelServiceProxyName,
		reads: reads("spec.type", "spec.clusterIP", "spec.clusterIPs", "spec.externalIPs", "spec.loadBalancerSourceRanges",
			"spec.ports.name", "spec.ports.protocol", "spec.ports.port", "spec.ports.nodePort",
			"spec.internalTrafficPolicy", "spec.externalTrafficPolicy", "spec.healthCheckNodePort",
			"spec.sessionAffinity", "spec.sessionAffinityConfig", "status.loadBalancer.ingress.ip", "status.loadBalancer.ingress.ipMode",
			"metadata.labels."+cluster.LabelServiceProxyName),
		set:       func(u *cluster.Update, object any) { u.SetService(object.(*corev1.Service)) },
		remove:    func(u *cluster.Update, n cache.ObjectName) { u.DeleteService(name(n)) },
		known:     func(u *cluster.Update) iter.Seq[cache.ObjectName] { return renamed(u.Services()) },
		endpoints: func(u *cluster.Update, n cache.ObjectName) int { return u.ServiceEndpoints(name(n)) },
	}
}

func endpointSlices() *resource {
	name := func(n cache.ObjectName) cluster.SliceName { return cluster.SliceName(n) }
	return &resource{
		Resource: apiclient.EndpointSlices, namespaced: true,
		labels: "!" + corev1.IsHeadlessService,
		reads: reads("addressType", "ports.name", "ports.protocol", "ports.port",
			"endpoints.addresses", "endpoints.conditions", "endpoints.nodeName", "endpoints.hints",
			"metadata.labels."+corev1.IsHeadlessService, "metadata.labels."+cluster.LabelServiceProxyName, "metadata.labels."+discoveryv1.LabelServiceName),
		set:       func(u *cluster.Update, object any) { u.SetEndpointSlice(object.(*discoveryv1.EndpointSlice)) },
		remove:    func(u *cluster.Update, n cache.ObjectName) { u.DeleteEndpointSlice(name(n)) },
		known:     func(u *cluster.Update) iter.Seq[cache.ObjectName] { return renamed(u.EndpointSlices()) },
		endpoints: func(u *cluster.Update, n cache.ObjectName) int { return u.SliceEndpoints(name(n)) },
	}
}

// nodes returns the resource of this node's own object. The Builder has a node from the start, so a deletion is
// passed on only if the object existed.
func nodes(nodeName string) *resource {
	seen := false
	return &resource{
		Resource: apiclient.Nodes,
		fields:   "metadata.name=" + nodeName,
		optional: true, // without it, only what depends on the Node is not served
		reads:    reads("spec.podCIDRs", "spec.taints.key", "status.addresses", "metadata.labels."+corev1.LabelTopologyZone),
		set: func(u *cluster.Update, object any) {
			seen = true
			u.SetNode(object.(*corev1.Node))
		},
		remove: func(u *cluster.Update, _ cache.ObjectName) {
			seen = false
			u.DeleteNode()
		},
		// An API server that has lost its data must not make all nodes drain at once.
		miss: func(u *cluster.Update, _ cache.ObjectName) {
			seen = false
			u.MissNode()
		},
		known: func(*cluster.Update) iter.Seq[cache.ObjectName] {
			return func(yield func(cache.ObjectName) bool) {
				if seen {
					yield(cache.ObjectName{Name: nodeName})
				}
			}
		},
	}
}

func serviceCIDRs() *resource {
	return &resource{
		Resource: apiclient.ServiceCIDRs,
		optional: true, // since Kubernetes 1.33
		reads:    reads("spec.cidrs"),
		set:      func(u *cluster.Update, object any) { u.SetServiceCIDR(object.(*networkingv1.ServiceCIDR)) },
		remove:   func(u *cluster.Update, n cache.ObjectName) { u.DeleteServiceCIDR(n.Name) },
		known: func(u *cluster.Update) iter.Seq[cache.ObjectName] {
			return func(yield func(cache.ObjectName) bool) {
				for name := range u.ServiceCIDRs() {
					if !yield(cache.ObjectName{Name: name}) {
						return
					}
				}
			}
		},
	}
}

// renamed converts the Builder's names to the type of all names in this package.
func renamed[N ~struct{ Namespace, Name string }](names iter.Seq[N]) iter.Seq[cache.ObjectName] {
	return func(yield func(cache.ObjectName) bool) {
		for name := range names {
			if !yield(cache.ObjectName(name)) {
				return
			}
		}
	}
}
