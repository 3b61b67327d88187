package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Builder turns Kubernetes objects into Snapshots. It may be used by several goroutines.
type Builder struct {
	changed chan struct{}

	mu       sync.Mutex
	convert  converter
	services *Editor[ServiceName, *Service]
	// orphans are slices whose Service is not served, or not known yet.
	orphans map[ServiceName][]*EndpointSlice
	// belongs tells which Service a slice was last listed for.
	belongs      map[SliceName]ServiceName
	endpoints    int
	node         *Node
	serviceCIDRs map[string][]netip.Prefix
	// last is the latest snapshot; it is returned again as long as nothing changed.
	last *Snapshot
}

// SliceName names an EndpointSlice.
type SliceName struct {
	Namespace, Name string
}

func (n SliceName) String() string { return n.Namespace + "/" + n.Name }

// NewBuilder makes an empty builder for the node of that name, which decides what is local. Addresses that are given,
// at most one of each family, are believed in place of what the Node object tells of that family; the first one
// is the primary.
func NewBuilder(nodeName string, addrs ...netip.Addr) *Builder {
	return &Builder{
		changed:      make(chan struct{}, 1),
		convert:      converter{node: nodeName, addrs: addrs, zones: map[string]*Zones{}},
		services:     Map[ServiceName, *Service]{}.Edit(),
		orphans:      map[ServiceName][]*EndpointSlice{},
		belongs:      map[SliceName]ServiceName{},
		node:         &Node{Name: nodeName, Addresses: addrs},
		serviceCIDRs: map[string][]netip.Prefix{},
	}
}

// Changed receives a value after an Update that changed something. Several updates may give one value.
func (b *Builder) Changed() <-chan struct{} { return b.changed }

// Snapshot freezes what is known now. It returns the same pointer as long as nothing changed.
func (b *Builder) Snapshot() *Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = &Snapshot{Services: b.services.Map(), Node: b.node, ServiceCIDRs: b.sortedCIDRs()}
	}
	return b.last
}

func (b *Builder) sortedCIDRs() []netip.Prefix {
	var all []netip.Prefix
	for _, cidrs := range b.serviceCIDRs {
		all = append(all, cidrs...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// Endpoints is the number of endpoints in all known slices, those of unknown Services included.
func (b *Builder) Endpoints() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.endpoints
}

// Update applies changes of any number of objects as one: no Snapshot shows a part of them. What an object
// holds that cannot be used is left out and told in the error, which joins Problems; everything else has been
// applied.
func (b *Builder) Update(change func(*Update)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := &Update{b: b}
	change(u)
	if u.changed {
		b.last = nil
		select {
		case b.changed <- struct{}{}:
		default:
		}
	}
	return errors.Join(u.problems...)
}

// Update is a series of changes in progress; see Builder.Update. It must not be kept.
type Update struct {
	b        *Builder
	changed  bool
	problems []error
}

func (u *Update) report(object fmt.Stringer, kind string, problems []*Problem) {
	for _, problem := range problems {
		problem.Kind, problem.Object = kind, object.String()
		u.problems = append(u.problems, problem)
	}
}

// SetService takes a Service as it is now. One that is not for this proxy is as good as deleted.
func (u *Update) SetService(object *corev1.Service) {
	name := ServiceName{Namespace: object.Namespace, Name: object.Name}
	if !served(object) {
		u.DeleteService(name)
		return
	}
	service, problems := u.b.convert.service(object)
	u.report(name, "Service", problems)
	old, known := u.b.services.Get(service.Name)
	if known {
		service.Slices = old.Slices
		if service.equal(old) {
			return
		}
	} else {
		service.Slices = u.b.orphans[service.Name]
		delete(u.b.orphans, service.Name)
	}
	u.b.services.Set(service.Name, service)
	u.changed = true
}

// DeleteService forgets a Service. Its slices are kept until they are deleted themselves.
func (u *Update) DeleteService(name ServiceName) {
	old, known := u.b.services.Get(name)
	if !known {
		return
	}
	if len(old.Slices) > 0 {
		u.b.orphans[name] = old.Slices
	}
	u.b.services.Delete(name)
	u.changed = true
}

// Services visits the names of all known Services, in order. The update may go on meanwhile.
func (u *Update) Services() iter.Seq[ServiceName] {
	return func(yield func(ServiceName) bool) {
		for name := range u.b.services.Map().All() {
			if !yield(name) {
				return
			}
		}
	}
}

// ServiceEndpoints is the number of endpoints that a Service has; 0 if it is not known.
func (u *Update) ServiceEndpoints(name ServiceName) int {
	service, _ := u.b.services.Get(name)
	if service == nil {
		return 0
	}
	count := 0
	for _, slice := range service.Slices {
		count += len(slice.Endpoints)
	}
	return count
}

// SetEndpointSlice takes an EndpointSlice as it is now.
func (u *Update) SetEndpointSlice(object *discoveryv1.EndpointSlice) {
	name := SliceName{Namespace: object.Namespace, Name: object.Name}
	service, ok, problems := owner(object)
	if !ok {
		u.report(name, "EndpointSlice", problems)
		u.DeleteEndpointSlice(name)
		return
	}
	slice, problems := u.b.convert.slice(object)
	u.report(name, "EndpointSlice", problems)
	if before, known := u.b.belongs[name]; known && before != service {
		u.DeleteEndpointSlice(name)
	}
	of := u.slicesOf(service)
	u.b.belongs[SliceName{Namespace: of.service.Namespace, Name: slice.Name}] = of.service
	u.replaceSlice(&of, slice.Name, slice)
}

// DeleteEndpointSlice forgets an EndpointSlice.
func (u *Update) DeleteEndpointSlice(name SliceName) {
	service, known := u.b.belongs[name]
	if !known {
		return
	}
	of := u.slicesOf(service)
	delete(u.b.belongs, name)
	u.replaceSlice(&of, name.Name, nil)
}

// EndpointSlices visits the names of all known slices, in no order. The update may go on meanwhile.
func (u *Update) EndpointSlices() iter.Seq[SliceName] { return maps.Keys(u.b.belongs) }

// SliceEndpoints is the number of endpoints that a slice has; 0 if it is not known.
func (u *Update) SliceEndpoints(name SliceName) int {
	service, known := u.b.belongs[name]
	if !known {
		return 0
	}
	of := u.slicesOf(service)
	if at, found := findSlice(of.slices, name.Name); found {
		return len(of.slices[at].Endpoints)
	}
	return 0
}

// family is a Service's slices, sorted by name.
type family struct {
	// service is the Service's name in the words that it has been told in before, so that one copy of them is kept.
	service ServiceName
	slices  []*EndpointSlice
	// owner is nil if the Service is not known.
	owner *Service
}

func (u *Update) slicesOf(service ServiceName) family {
	if owner, served := u.b.services.Get(service); served {
		return family{service: owner.Name, slices: owner.Slices, owner: owner}
	}
	orphans := u.b.orphans[service]
	if len(orphans) > 0 {
		service = u.b.belongs[SliceName{Namespace: service.Namespace, Name: orphans[0].Name}]
	}
	return family{service: service, slices: orphans}
}

func findSlice(all []*EndpointSlice, name string) (at int, found bool) {
	return slices.BinarySearchFunc(all, name, func(s *EndpointSlice, name string) int { return cmp.Compare(s.Name, name) })
}

// replaceSlice puts a slice in the place of the one of that name, or takes that one away when slice is nil.
func (u *Update) replaceSlice(of *family, name string, slice *EndpointSlice) {
	all := of.slices
	at, found := findSlice(all, name)
	if found {
		if slice != nil && slice.equal(all[at]) {
			return
		}
		u.b.endpoints -= len(all[at].Endpoints)
	}
	replaced := append(make([]*EndpointSlice, 0, len(all)+1), all[:at]...)
	if slice != nil {
		u.b.endpoints += len(slice.Endpoints)
		replaced = append(replaced, slice)
	}
	if found {
		at++
	}
	replaced = append(replaced, all[at:]...)
	switch {
	case of.owner != nil:
		changed := *of.owner
		changed.Slices = replaced
		u.b.services.Set(of.service, &changed)
		u.changed = true
	case len(replaced) == 0:
		delete(u.b.orphans, of.service)
	default:
		u.b.orphans[of.service] = replaced
	}
}

// SetNode takes this node's object as it is now; any other node's is ignored. Addresses and pod CIDRs that the object does
// not have keep the values of its earlier versions.
func (u *Update) SetNode(object *corev1.Node) {
	if object.Name != u.b.node.Name {
		return
	}
	node, problems := u.b.convert.nodeObject(object)
	u.report(nodeName(object.Name), "Node", problems)
	node.Interfaces = u.b.node.Interfaces
	// A Node that was deleted and created again has neither at first, but the machine and its pods still have theirs.
	if len(node.Addresses) == 0 {
		node.Addresses = u.b.node.Addresses
	}
	if len(node.PodCIDRs) == 0 {
		node.PodCIDRs = u.b.node.PodCIDRs
	}
	u.setNode(node)
}

// DeleteNode tells that this node's object is gone. What it said stays in force, but for a node that is no
// longer part of the cluster load balancers should go elsewhere.
func (u *Update) DeleteNode() {
	node := *u.b.node
	node.Exists, node.Draining = false, true
	u.setNode(&node)
}

// SetInterfaces tells the addresses that this machine's interfaces bear.
func (u *Update) SetInterfaces(addrs []netip.Addr) {
	node := *u.b.node
	node.Interfaces = slices.Clone(addrs)
	slices.SortFunc(node.Interfaces, netip.Addr.Compare)
	node.Interfaces = slices.Compact(node.Interfaces)
	u.setNode(&node)
}

func (u *Update) setNode(node *Node) {
	if !node.equal(u.b.node) {
		u.b.node = node
		u.changed = true
	}
}

// SetServiceCIDR takes a ServiceCIDR as it is now.
func (u *Update) SetServiceCIDR(object *networkingv1.ServiceCIDR) {
	cidrs, problems := serviceCIDR(object)
	u.report(nodeName(object.Name), "ServiceCIDR", problems)
	if old, known := u.b.serviceCIDRs[object.Name]; !known || !slices.Equal(old, cidrs) {
		u.b.serviceCIDRs[object.Name] = cidrs
		u.changed = true
	}
}

// DeleteServiceCIDR forgets a ServiceCIDR.
func (u *Update) DeleteServiceCIDR(name string) {
	if _, known := u.b.serviceCIDRs[name]; known {
		delete(u.b.serviceCIDRs, name)
		u.changed = true
	}
}

// ServiceCIDRs visits the names of all known ServiceCIDRs, in no order. The update may go on meanwhile.
func (u *Update) ServiceCIDRs() iter.Seq[string] { return maps.Keys(u.b.serviceCIDRs) }

// nodeName lets a name without a namespace be reported.
type nodeName string

func (n nodeName) String() string { return string(n) }
