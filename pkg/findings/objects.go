package findings

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
)

// everyNode is the node that the plan is computed for. Every endpoint that names a node is local to it, and hints are left
// out: what this node drops, every node drops.
const everyNode = "(every node)"

// managedBy is the value of the label endpointslice.kubernetes.io/managed-by of slices that follow the pods of a Service.
const managedBy = "endpointslice-controller.k8s.io"

// objects builds the snapshot, and keeps what the findings need and a snapshot does not contain.
type objects struct {
	builder *cluster.Builder
	// unserved are the Services that exist and are not for this proxy.
	unserved map[cluster.ServiceName]bool
	// manual are the slices that the EndpointSlice controller does not manage.
	manual map[cluster.SliceName]bool
	// nodes are the names of Nodes; placed are the nodes that endpoints name.
	nodes  map[string]bool
	placed map[string]*placement
}

// placement counts the endpoints that name a node.
type placement struct {
	first             cluster.SliceName
	endpoints, slices int
}

func newObjects() *objects {
	return &objects{
		builder:  cluster.NewBuilder(everyNode),
		unserved: map[cluster.ServiceName]bool{}, manual: map[cluster.SliceName]bool{},
		nodes: map[string]bool{}, placed: map[string]*placement{},
	}
}

// unallocated reports whether a Service has no cluster IP yet, as in a file: a proxy serves it when it has one.
func unallocated(s *corev1.Service) bool {
	return s.Spec.ClusterIP == "" && s.Spec.Type != corev1.ServiceTypeExternalName
}

func (o *objects) service(s *corev1.Service) error {
	source.SetDefaults(s)
	name := cluster.ServiceName{Namespace: s.Namespace, Name: s.Name}
	if unserved(s) != "" || unallocated(s) {
		o.unserved[name] = true
		return nil
	}
	return o.builder.Update(func(u *cluster.Update) { u.SetService(s) })
}

// slice changes the slice.
func (o *objects) slice(slice *discoveryv1.EndpointSlice) error {
	source.SetDefaults(slice)
	name := cluster.SliceName{Namespace: slice.Namespace, Name: slice.Name}
	if slice.Labels[discoveryv1.LabelManagedBy] != managedBy {
		o.manual[name] = true
	}
	every, seen := everyNode, map[*placement]bool{}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		e.Hints = nil
		if e.NodeName == nil || *e.NodeName == "" {
			continue
		}
		p := o.placed[*e.NodeName]
		if p == nil {
			p = &placement{first: name}
			o.placed[strings.Clone(*e.NodeName)] = p
		}
		p.endpoints++
		if !seen[p] {
			seen[p] = true
			p.slices++
		}
		e.NodeName = &every
	}
	return o.builder.Update(func(u *cluster.Update) { u.SetEndpointSlice(slice) })
}

// problems notes the fields that the snapshot could not use.
func (a *Analyzer) problems(err error) {
	joined, ok := err.(interface{ Unwrap() []error }) // Update returns the joined errors themselves
	if !ok {
		return
	}
	for _, each := range joined.Unwrap() {
		p, ok := errors.AsType[*cluster.Problem](each)
		if !ok {
			continue
		}
		f := Finding{Code: InvalidField, Kind: p.Kind, Name: p.Object, Message: p.Field + ": " + p.Err.Error()}
		if namespace, name, found := strings.Cut(p.Object, "/"); found {
			f.Namespace, f.Name = namespace, name
		}
		switch {
		case p.Kind != "EndpointSlice":
		case p.Field == "metadata.labels":
			f.Code = SliceWithoutService
		case strings.HasPrefix(p.Field, "endpoints[") && strings.HasSuffix(p.Field, ".addresses[0]"):
			f.Code = EndpointAddress
		}
		a.Add(f)
	}
}

// node finds what the proxy of a Node misses.
func (a *Analyzer) node(node *corev1.Node) {
	source.SetDefaults(node)
	a.objects.nodes[node.Name] = true
	builder := cluster.NewBuilder(node.Name)
	a.problems(builder.Update(func(u *cluster.Update) { u.SetNode(node) }))
	own := builder.Snapshot().Node
	if len(own.Addresses) == 0 {
		a.Add(Finding{Code: NodeWithoutAddress, Kind: "Node", Name: node.Name, Message: "status.addresses has neither an InternalIP nor an ExternalIP"})
	}
	if a.options.Plan != nil && a.options.Plan.NodeCIDR && len(own.PodCIDRs) == 0 {
		a.Add(Finding{Code: NodeWithoutPodCIDR, Kind: "Node", Name: node.Name,
			Message: "spec.podCIDRs is empty, and detectLocalMode is NodeCIDR: every connection to a cluster IP is masqueraded"})
	}
}
