package cluster

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

// Builder converts Kubernetes objects into Snapshots. It is safe for concurrent use.
type Builder struct {
	changed chan struct{}

	mu       sync.Mutex
	convert  converter
	services *Editor[ServiceName, *Service]
	// orphans holds the slices whose Service is not served, or not known yet.
	orphans map[ServiceName][]*EndpointSlice
	// owners maps a slice to the name of the Service, in the same namespace, that it was last seen with, unless that is usualOwner.
	owners       map[SliceName]string
	endpoints    int
	node         *Node
	serviceCIDRs map[string][]netip.Prefix
	// last is the latest snapshot, returned again until something changes.
	last *Snapshot
	// shown reports that there was a snapshot. Before that nobody else has seen a Service, so its slices are added in place.
	shown bool
}

// SliceName names an EndpointSlice.
type SliceName struct {
	Namespace, Name string
}

func (n SliceName) String() string { return n.Namespace + "/" + n.Name }

// NewBuilder returns an empty Builder. The node of that name decides which endpoints are local. addrs, at most one of
// each family and the primary one first, override the Node object's addresses of the same family.
func NewBuilder(nodeName string, addrs ...netip.Addr) *Builder {
	return &Builder{
		changed:      make(chan struct{}, 1),
		convert:      converter{nodeName: nodeName, nodeAddrs: addrs},
		services:     Map[ServiceName, *Service]{}.Edit(),
		orphans:      map[ServiceName][]*EndpointSlice{},
		owners:       map[SliceName]string{},
		node:         &Node{Name: nodeName, Addresses: addrs},
		serviceCIDRs: map[string][]netip.Prefix{},
	}
}

// Changed returns a channel that receives a value after an Update that changed something. Several updates may be
// coalesced into one value.
func (b *Builder) Changed() <-chan struct{} { return b.changed }

// Snapshot returns the current state. It returns the same pointer until something changes.
func (b *Builder) Snapshot() *Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = &Snapshot{Services: b.services.Map(), Node: b.node, ServiceCIDRs: b.sortedCIDRs()}
		b.shown = true
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

// Endpoints returns the number of endpoints in all slices, including those of unknown Services, but not in Foreign ones.
func (b *Builder) Endpoints() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.endpoints
}

// Unowned are the slices of a Service that is not in a Snapshot, although their labels do not say that it is for another proxy.
type Unowned struct {
	Service ServiceName
	// Slices are sorted by name.
	Slices []*EndpointSlice
}

// Unowned returns the slices without a Service at this moment, sorted by Service.
func (b *Builder) Unowned() []Unowned {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Unowned, 0, len(b.orphans))
	for service, of := range b.orphans {
		of = slices.DeleteFunc(slices.Clone(of), func(s *EndpointSlice) bool { return s.Foreign }) // the list may change
		if len(of) > 0 {
			all = append(all, Unowned{service, of})
		}
	}
	slices.SortFunc(all, func(a, b Unowned) int { return a.Service.Compare(b.Service) })
	return all
}

// Update applies changes of any number of objects atomically: a Snapshot shows either all of them or none. Fields
// that cannot be used are left out and reported in the error, which joins Problems; everything else is applied.
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

// Update is a series of changes in progress; see Builder.Update. It must not be retained.
type Update struct {
	b        *Builder
	changed  bool
	problems []error
}

// report adds the problems of an object. namespace is "" if its kind has none.
func (u *Update) report(kind, namespace, name string, problems []*Problem) {
	for _, problem := range problems {
		problem.Kind, problem.Object = kind, name
		if namespace != "" {
			problem.Object = namespace + "/" + name
		}
		u.problems = append(u.problems, problem)
	}
}

// SetService adds or replaces a Service. A Service that is not for this proxy is treated as deleted.
func (u *Update) SetService(object *corev1.Service) {
	name := ServiceName{Namespace: object.Namespace, Name: object.Name}
	if !served(object) {
		u.DeleteService(name)
		return
	}
	service, problems := u.b.convert.service(object)
	u.report("Service", name.Namespace, name.Name, problems)
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

// DeleteService removes a Service. Its slices are kept until they are deleted themselves.
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

// Services returns the names of all known Services, sorted. The update may be modified during the iteration.
func (u *Update) Services() iter.Seq[ServiceName] {
	return func(yield func(ServiceName) bool) {
		for name := range u.b.services.Map().All() {
			if !yield(name) {
				return
			}
		}
	}
}

// ServiceEndpoints returns the number of endpoints of a Service; 0 if it is not known.
func (u *Update) ServiceEndpoints(name ServiceName) int {
	service, _ := u.b.services.Get(name)
	if service == nil {
		return 0
	}
	count := 0
	for _, slice := range service.Slices {
		count += slice.counted()
	}
	return count
}

// counted returns the number of endpoints that count: those of other proxies' Services would hide that all others are lost.
func (s *EndpointSlice) counted() int {
	if s.Foreign {
		return 0
	}
	return len(s.Endpoints)
}

// SetEndpointSlice adds or replaces an EndpointSlice.
func (u *Update) SetEndpointSlice(object *discoveryv1.EndpointSlice) {
	name := SliceName{Namespace: object.Namespace, Name: object.Name}
	service, ok, problems := owner(object)
	if !ok {
		u.report("EndpointSlice", name.Namespace, name.Name, problems)
		u.DeleteEndpointSlice(name)
		return
	}
	slice, problems := u.b.convert.slice(object)
	u.report("EndpointSlice", name.Namespace, name.Name, problems)
	if before, known := u.find(name); known && before.name != service {
		u.DeleteEndpointSlice(name)
	}
	of := u.slicesOf(service)
	if of.name.Name != usualOwner(slice.Name) {
		u.b.owners[SliceName{Namespace: of.name.Namespace, Name: slice.Name}] = of.name.Name
	}
	u.replaceSlice(&of, slice.Name, slice)
}

// DeleteEndpointSlice removes an EndpointSlice.
func (u *Update) DeleteEndpointSlice(name SliceName) {
	if of, known := u.find(name); known {
		delete(u.b.owners, name)
		u.replaceSlice(&of, name.Name, nil)
	}
}

// EndpointSlices returns the names of all known slices, unsorted. The update must not be modified during the iteration.
func (u *Update) EndpointSlices() iter.Seq[SliceName] {
	return func(yield func(SliceName) bool) {
		for name, service := range u.b.services.Map().All() {
			for _, slice := range service.Slices {
				if !yield(SliceName{name.Namespace, slice.Name}) {
					return
				}
			}
		}
		for name, all := range u.b.orphans {
			for _, slice := range all {
				if !yield(SliceName{name.Namespace, slice.Name}) {
					return
				}
			}
		}
	}
}

// SliceEndpoints returns the number of endpoints of a slice; 0 if it is not known, or Foreign.
func (u *Update) SliceEndpoints(name SliceName) int {
	of, known := u.find(name)
	if !known {
		return 0
	}
	at, _ := findSlice(of.slices, name.Name)
	return of.slices[at].counted()
}

// usualOwner returns the Service that a slice of that name usually belongs to: the controller of EndpointSlices asks for the Service's
// name with a hyphen (metadata.generateName), and the API server appends random characters without one.
func usualOwner(slice string) string { return slice[:max(0, strings.LastIndexByte(slice, '-'))] }

// find returns the slices of the Service that a slice was last seen with, if the slice is among them.
func (u *Update) find(name SliceName) (of serviceSlices, known bool) {
	service, unusual := u.b.owners[name]
	if !unusual {
		service = usualOwner(name.Name)
	}
	of = u.slicesOf(ServiceName{name.Namespace, service})
	_, known = findSlice(of.slices, name.Name)
	return of, known
}

// serviceSlices are the slices of one Service, sorted by name.
type serviceSlices struct {
	// name is the Service's, in its own memory if it is known.
	name   ServiceName
	slices []*EndpointSlice
	// service is nil if the Service is not known.
	service *Service
}

func (u *Update) slicesOf(name ServiceName) serviceSlices {
	if known, ok := u.b.services.Get(name); ok {
		return serviceSlices{name: known.Name, slices: known.Slices, service: known}
	}
	return serviceSlices{name: name, slices: u.b.orphans[name]}
}

func findSlice(all []*EndpointSlice, name string) (at int, found bool) {
	return slices.BinarySearchFunc(all, name, func(s *EndpointSlice, name string) int { return cmp.Compare(s.Name, name) })
}

// replaceSlice replaces the slice of that name, or deletes it if slice is nil.
func (u *Update) replaceSlice(of *serviceSlices, name string, slice *EndpointSlice) {
	all := of.slices
	at, found := findSlice(all, name)
	if found {
		if slice != nil && slice.equal(all[at]) {
			return
		}
		u.b.endpoints -= all[at].counted()
	}
	var added []*EndpointSlice
	if slice != nil {
		u.b.endpoints += slice.counted()
		added = []*EndpointSlice{slice}
	}
	until := at
	if found {
		until++
	}
	if u.b.shown { // a snapshot may have the list
		all = append(make([]*EndpointSlice, 0, len(all)+1), all...)
	}
	replaced := slices.Replace(all, at, until, added...)
	switch {
	case of.service != nil && !u.b.shown:
		of.service.Slices = replaced
		u.changed = true
	case of.service != nil:
		changed := *of.service
		changed.Slices = replaced
		u.b.services.Set(of.name, &changed)
		u.changed = true
	case len(replaced) == 0:
		delete(u.b.orphans, of.name)
	default:
		u.b.orphans[of.name] = replaced
	}
}

// SetNode sets this node's object; objects of other nodes are ignored. If the object has no addresses or no pod
// CIDRs, those of its earlier versions remain in use.
func (u *Update) SetNode(object *corev1.Node) {
	if object.Name != u.b.node.Name {
		return
	}
	node, problems := u.b.convert.node(object)
	u.report("Node", "", object.Name, problems)
	node.Interfaces, node.Devices = u.b.node.Interfaces, u.b.node.Devices
	// A Node that was deleted and created again has neither at first, but the machine and its pods still have theirs.
	if len(node.Addresses) == 0 {
		node.Addresses = u.b.node.Addresses
	}
	if len(node.PodCIDRs) == 0 {
		node.PodCIDRs = u.b.node.PodCIDRs
	}
	u.setNode(node)
}

// DeleteNode records that this node's object was deleted. Its last addresses, zone and pod CIDRs remain in use, but
// the node counts as draining: load balancers should avoid a node that is no longer part of the cluster.
func (u *Update) DeleteNode() {
	node := *u.b.node
	node.Exists, node.Draining = false, true
	u.setNode(&node)
}

// MissNode records that the API server does not have this node's object. That may be a fault of the API server, so nothing else
// changes, unlike after a deletion.
func (u *Update) MissNode() {
	node := *u.b.node
	node.Exists = false
	u.setNode(&node)
}

// SetInterfaces sets the addresses of this machine's interfaces.
func (u *Update) SetInterfaces(addrs []netip.Addr) {
	node := *u.b.node
	node.Interfaces = slices.Clone(addrs)
	slices.SortFunc(node.Interfaces, netip.Addr.Compare)
	node.Interfaces = slices.Compact(node.Interfaces)
	u.setNode(&node)
}

// SetDevices sets the indexes of the interfaces on which IP packets arrive, by name. Every pod that starts or ends changes them, so
// this counts as a change only if a Service has the fast path: by its annotation or, if all is set, without one.
func (u *Update) SetDevices(devices map[string]int, all bool) {
	node := *u.b.node
	node.Devices = nil
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		node.Devices = append(node.Devices, Device{name, devices[name]})
	}
	if node.equal(u.b.node) {
		return
	}
	u.b.node, u.b.last = &node, nil // the next Snapshot shows them
	for _, service := range u.b.services.Map().All() {
		if ptr.Deref(service.FastPath, all) {
			u.changed = true
			break
		}
	}
}

func (u *Update) setNode(node *Node) {
	if !node.equal(u.b.node) {
		u.b.node = node
		u.changed = true
	}
}

// SetServiceCIDR adds or replaces a ServiceCIDR.
func (u *Update) SetServiceCIDR(object *networkingv1.ServiceCIDR) {
	cidrs, problems := serviceCIDR(object)
	u.report("ServiceCIDR", "", object.Name, problems)
	if old, known := u.b.serviceCIDRs[object.Name]; !known || !slices.Equal(old, cidrs) {
		u.b.serviceCIDRs[object.Name] = cidrs
		u.changed = true
	}
}

// DeleteServiceCIDR removes a ServiceCIDR.
func (u *Update) DeleteServiceCIDR(name string) {
	if _, known := u.b.serviceCIDRs[name]; known {
		delete(u.b.serviceCIDRs, name)
		u.changed = true
	}
}

// ServiceCIDRs returns the names of all known ServiceCIDRs, unsorted. The update may be modified during the
// iteration.
func (u *Update) ServiceCIDRs() iter.Seq[string] { return maps.Keys(u.b.serviceCIDRs) }
