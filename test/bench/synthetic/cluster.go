package synthetic

import (
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// The address ranges.
const (
	// ServiceCIDR contains the cluster IPs.
	ServiceCIDR = "10.0.0.0/12"
	// EndpointCIDR contains the endpoints.
	EndpointCIDR = "10.64.0.0/10"

	maxServices  = 1 << 20
	maxEndpoints = 1 << 22
)

// The one port of every Service and endpoint, for TCP unless the Service was created for another protocol.
const (
	ServicePort  = 80
	EndpointPort = 8080
)

// Targets is the number of Services at the end of a cluster that have at most two endpoints each, so that packets soon
// see a change of one of them.
const Targets = 16

// maxSliceEndpoints is the number of endpoints that the EndpointSlice controller puts into one slice.
const maxSliceEndpoints = 100

// historyLength is the number of events that a watch may lag behind.
const historyLength = 20_000

// Size is the size of a cluster.
type Size struct {
	// Services is the number of Services, Endpoints the number of endpoints of each Service that is no target.
	Services, Endpoints int
}

// String returns the size in the form "1000x2".
func (s Size) String() string { return fmt.Sprintf("%dx%d", s.Services, s.Endpoints) }

// ParseSize parses the result of String.
func ParseSize(text string) (Size, error) {
	services, endpoints, ok := strings.Cut(text, "x")
	var size Size
	var err error
	if size.Services, err = strconv.Atoi(services); err == nil {
		size.Endpoints, err = strconv.Atoi(endpoints)
	}
	if !ok || err != nil {
		return Size{}, fmt.Errorf("invalid size %q: use the form 1000x2, the number of Services and the endpoints of each", text)
	}
	if size.Services < Targets || size.Services > maxServices/2 || size.Endpoints < 1 || size.Services*size.Endpoints > maxEndpoints/2 {
		return Size{}, fmt.Errorf("the size %s is out of range: %d to %d Services, and at most %d endpoints in all",
			text, Targets, maxServices/2, maxEndpoints/2)
	}
	return size, nil
}

// Cluster is a computed cluster that can be changed. Services are numbered from 0.
type Cluster struct {
	mu sync.Mutex
	view
	fresh   uint32 // number of the next endpoint
	created int    // Services made since the start
	history []event
	// forgotten is the version after which the history starts.
	forgotten int64
	woken     chan struct{} // closed and replaced at every change
}

// view is an immutable state of the cluster.
type view struct {
	size    Size
	node    string
	version int64 // the resourceVersion
	// changed are the Services that differ from the start.
	changed map[int]*service
	// prepared are objects encoded in protobuf; nil if there are none.
	prepared *prepared
}

// service is the mutable part of a Service.
type service struct {
	number    int
	gone      bool
	created   int64 // its version
	changed   int64 // the version of its slices
	endpoints []uint32
	protocol  corev1.Protocol
}

// event is a watch event of a Service or of one of its slices.
type event struct {
	version int64
	kind    resource
	typ     watch.EventType
	service *service
	slice   int
}

// New returns a cluster for a proxy on the node of that name.
func New(size Size, node string) *Cluster {
	return &Cluster{
		view:      view{size: size, node: node, version: 1000, changed: map[int]*service{}},
		fresh:     uint32(size.Services * size.Endpoints),
		forgotten: 1000,
		woken:     make(chan struct{}),
	}
}

// Size returns the initial size of the cluster.
func (c *Cluster) Size() Size { return c.size }

// VIP returns the cluster IP and port of a Service.
func VIP(number int) netip.AddrPort {
	return netip.AddrPortFrom(nth(10<<24, number+256), ServicePort)
}

// endpointAddr returns the address of an endpoint.
func endpointAddr(n uint32) netip.Addr { return nth(10<<24|64<<16, int(n%maxEndpoints)) }

func nth(base uint32, n int) netip.Addr {
	n += int(base)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// at returns the current state of a Service; nil if it does not exist.
func (v *view) at(number int) *service {
	if s, changed := v.changed[number]; changed {
		if s.gone {
			return nil
		}
		return s
	}
	if number >= v.size.Services {
		return nil
	}
	s := &service{number: number, created: 1, changed: 2, protocol: corev1.ProtocolTCP, endpoints: make([]uint32, v.size.endpointsOf(number))}
	for i := range s.endpoints {
		s.endpoints[i] = uint32(number*v.size.Endpoints + i)
	}
	return s
}

// endpointsOf returns the initial number of endpoints of a Service.
func (s Size) endpointsOf(number int) int {
	if number >= s.Services-Targets {
		return min(s.Endpoints, 2)
	}
	return s.Endpoints
}

// Total returns the initial number of endpoints of all Services.
func (s Size) Total() int {
	return (s.Services-Targets)*s.Endpoints + Targets*s.endpointsOf(s.Services-1)
}

// slices returns the number of slices of a Service.
func (s *service) slices() int {
	return max(1, (len(s.endpoints)+maxSliceEndpoints-1)/maxSliceEndpoints)
}

// Endpoints returns the addresses of a Service's endpoints; nil if the Service does not exist.
func (c *Cluster) Endpoints(number int) []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	var addrs []netip.Addr
	if s := c.at(number); s != nil {
		for _, n := range s.endpoints {
			addrs = append(addrs, endpointAddr(n))
		}
	}
	return addrs
}

// ReplaceEndpoint replaces an endpoint of a Service by a new one, as a rolling update does, and notifies the watches. It
// returns the address of the new endpoint. The Service must exist.
func (c *Cluster) ReplaceEndpoint(number int) netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replace(number, int(c.fresh)%len(c.at(number).endpoints))
}

// ReplaceEndpointAt is ReplaceEndpoint for the endpoint with the index at.
func (c *Cluster) ReplaceEndpointAt(number, at int) netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replace(number, at)
}

// ReplaceAll replaces all endpoints of Services, and notifies the watches of all these changes at once. The Services must
// exist, and have so few endpoints that these are in one slice.
func (c *Cluster) ReplaceAll(numbers ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, number := range numbers {
		s := *c.at(number)
		s.endpoints = make([]uint32, len(s.endpoints))
		for at := range s.endpoints {
			s.endpoints[at] = c.take()
		}
		c.record(&s, event{kind: endpointSlices, typ: watch.Modified})
	}
	c.wake()
}

func (c *Cluster) replace(number, at int) netip.Addr {
	s := *c.at(number)
	s.endpoints = append([]uint32(nil), s.endpoints...)
	s.endpoints[at] = c.take()
	c.change(&s, event{kind: endpointSlices, typ: watch.Modified, slice: at / maxSliceEndpoints})
	return endpointAddr(s.endpoints[at])
}

// Create creates a Service for TCP with new endpoints, at most two, and notifies the watches. It returns the Service's
// number.
func (c *Cluster) Create() int { return c.CreateWith(corev1.ProtocolTCP, min(c.size.Endpoints, 2)) }

// CreateWith is Create for a protocol and a number of endpoints.
func (c *Cluster) CreateWith(protocol corev1.Protocol, endpoints int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &service{number: c.size.Services + c.created, protocol: protocol}
	c.created++
	for range endpoints {
		s.endpoints = append(s.endpoints, c.take())
	}
	events := []event{{kind: services, typ: watch.Added}}
	for slice := range s.slices() {
		events = append(events, event{kind: endpointSlices, typ: watch.Added, slice: slice})
	}
	c.change(s, events...)
	return s.number
}

// Delete deletes a Service and its slices, and notifies the watches. The Service must exist.
func (c *Cluster) Delete(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := *c.at(number)
	events := []event{{kind: services, typ: watch.Deleted}}
	for slice := range s.slices() {
		events = append(events, event{kind: endpointSlices, typ: watch.Deleted, slice: slice})
	}
	s.gone = true
	c.change(&s, events...)
}

// take returns the number of an endpoint that has not been used, at least not recently.
func (c *Cluster) take() uint32 {
	n := c.fresh
	if c.fresh++; c.fresh == maxEndpoints {
		c.fresh = uint32(c.size.Services * c.size.Endpoints)
	}
	return n
}

// change stores a Service and sends the events.
func (c *Cluster) change(s *service, events ...event) {
	c.record(s, events...)
	c.wake()
}

// record stores a Service and the events, which wake sends.
func (c *Cluster) record(s *service, events ...event) {
	for _, e := range events {
		c.version++
		e.version, e.service = c.version, s
		if e.kind == endpointSlices {
			s.changed = c.version
		} else {
			s.created = c.version
		}
		c.history = append(c.history, e)
	}
	c.changed[s.number] = s
	if extra := len(c.history) - historyLength; extra > historyLength {
		c.forgotten = c.history[extra-1].version
		c.history = append([]event(nil), c.history[extra:]...)
	}
}

func (c *Cluster) wake() {
	close(c.woken)
	c.woken = make(chan struct{})
}

// now returns the current view.
func (c *Cluster) now() *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view
	v.changed = maps.Clone(v.changed)
	return &v
}

// since returns the events after a version, and a channel that is closed when there are more. ok is false if the history
// does not go back that far.
func (c *Cluster) since(version int64) (events []event, more <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version < c.forgotten || version > c.version {
		return nil, nil, false
	}
	at := len(c.history) - int(c.version-version)
	return c.history[max(0, at):], c.woken, true
}

// Next returns the number of the next Service that Create will create.
func (c *Cluster) Next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size.Services + c.created
}
