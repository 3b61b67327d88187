package synthetic

import (
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// The ranges that addresses are taken from.
const (
	// ServiceCIDR has the cluster IPs.
	ServiceCIDR = "10.0.0.0/12"
	// EndpointCIDR has the endpoints.
	EndpointCIDR = "10.64.0.0/10"

	maxServices  = 1 << 20
	maxEndpoints = 1 << 22
)

// The one port of every Service and endpoint, for TCP.
const (
	ServicePort  = 80
	EndpointPort = 8080
)

// Targets is the number of Services at a cluster's end that have at most two endpoints each, so that a packet soon
// meets a change of one of them.
const Targets = 16

// maxSliceEndpoints is how many endpoints the EndpointSlice controller puts into one slice.
const maxSliceEndpoints = 100

// historyLength is how many events a watch may lag behind.
const historyLength = 20_000

// Size is the size of a cluster.
type Size struct {
	// Services is the number of Services, Endpoints that of each one's endpoints.
	Services, Endpoints int
}

// String is such as "1000x2".
func (s Size) String() string { return fmt.Sprintf("%dx%d", s.Services, s.Endpoints) }

// ParseSize reads what String writes.
func ParseSize(text string) (Size, error) {
	services, endpoints, ok := strings.Cut(text, "x")
	var size Size
	var err error
	if size.Services, err = strconv.Atoi(services); err == nil {
		size.Endpoints, err = strconv.Atoi(endpoints)
	}
	if !ok || err != nil {
		return Size{}, fmt.Errorf("the size %q is not as 1000x2: a number of Services, x, and the endpoints of each", text)
	}
	if size.Services < Targets || size.Services > maxServices/2 || size.Endpoints < 1 || size.Services*size.Endpoints > maxEndpoints/2 {
		return Size{}, fmt.Errorf("the size %s is out of range: %d to %d Services, and at most %d endpoints in all",
			text, Targets, maxServices/2, maxEndpoints/2)
	}
	return size, nil
}

// Cluster is a made-up cluster that can be changed. Services have numbers from 0.
type Cluster struct {
	size Size
	node string

	mu sync.Mutex
	view
	fresh   uint32 // number of the next endpoint
	created int    // Services made since the start
	history []event
	// forgotten is the version after which the history begins.
	forgotten int64
	woken     chan struct{} // closed and replaced at every change
}

// view is the cluster at one moment. It is never changed once it is given out.
type view struct {
	size    Size
	node    string
	version int64 // the resourceVersion
	// changed are the Services that are not as at the start.
	changed map[int]*service
	// prepared are objects that need not be encoded, for those who take protobuf; nil if there are none.
	prepared *prepared
}

// service is what of a Service can change.
type service struct {
	number    int
	gone      bool
	created   int64 // its version
	changed   int64 // its slices' version
	endpoints []uint32
}

// event is what watches tell: of a Service or of one of its slices.
type event struct {
	version int64
	kind    resource
	typ     watch.EventType
	service *service
	slice   int
}

// New makes a cluster for a proxy on the node of that name.
func New(size Size, node string) *Cluster {
	return &Cluster{
		size: size, node: node,
		view:      view{size: size, node: node, version: 1000, changed: map[int]*service{}},
		fresh:     uint32(size.Services * size.Endpoints),
		forgotten: 1000,
		woken:     make(chan struct{}),
	}
}

// Size is the size that the cluster began with.
func (c *Cluster) Size() Size { return c.size }

// VIP is the cluster IP and port of a Service.
func VIP(number int) netip.AddrPort {
	return netip.AddrPortFrom(nth(10<<24, number+256), ServicePort)
}

// endpointAddr is the address of an endpoint.
func endpointAddr(n uint32) netip.Addr { return nth(10<<24|64<<16, int(n%maxEndpoints)) }

func nth(base uint32, n int) netip.Addr {
	n += int(base)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// at is a Service as it is; nil if there is none.
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
	s := &service{number: number, created: 1, changed: 2, endpoints: make([]uint32, v.size.endpointsOf(number))}
	for i := range s.endpoints {
		s.endpoints[i] = uint32(number*v.size.Endpoints + i)
	}
	return s
}

// endpointsOf is how many endpoints a Service has at the start.
func (s Size) endpointsOf(number int) int {
	if number >= s.Services-Targets {
		return min(s.Endpoints, 2)
	}
	return s.Endpoints
}

// slices is how many slices a Service has.
func (s *service) slices() int {
	return max(1, (len(s.endpoints)+maxSliceEndpoints-1)/maxSliceEndpoints)
}

// Endpoints are the addresses that a Service's endpoints have; nil if there is none.
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

// ReplaceEndpoint puts a new endpoint in the place of one of a Service's, as a rolling update does, and tells the
// watches. It gives the new one's address. There must be such a Service.
func (c *Cluster) ReplaceEndpoint(number int) netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := *c.at(number)
	s.endpoints = append([]uint32(nil), s.endpoints...)
	n := c.take()
	at := int(n) % len(s.endpoints)
	s.endpoints[at] = n
	c.change(&s, event{kind: endpointSlices, typ: watch.Modified, slice: at / maxSliceEndpoints})
	return endpointAddr(n)
}

// Create makes a new Service with new endpoints, at most two, and tells the watches. It gives the Service's number.
func (c *Cluster) Create() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &service{number: c.size.Services + c.created}
	c.created++
	for range min(c.size.Endpoints, 2) {
		s.endpoints = append(s.endpoints, c.take())
	}
	c.change(s, event{kind: services, typ: watch.Added}, event{kind: endpointSlices, typ: watch.Added})
	return s.number
}

// Delete removes a Service and its slices, and tells the watches. There must be such a Service.
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

// take gives the number of an endpoint that has not been in use, at least not lately.
func (c *Cluster) take() uint32 {
	n := c.fresh
	if c.fresh++; c.fresh == maxEndpoints {
		c.fresh = uint32(c.size.Services * c.size.Endpoints)
	}
	return n
}

// change puts a Service in its place and tells what happened to it.
func (c *Cluster) change(s *service, events ...event) {
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
	close(c.woken)
	c.woken = make(chan struct{})
}

// now gives the cluster as it is.
func (c *Cluster) now() *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view
	v.changed = maps.Clone(v.changed)
	return &v
}

// since gives the events after a version, and a channel that is closed when there is more. ok is false where the
// history does not go back so far.
func (c *Cluster) since(version int64) (events []event, more <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version < c.forgotten || version > c.version {
		return nil, nil, false
	}
	at := len(c.history) - int(c.version-version)
	return c.history[max(0, at):], c.woken, true
}

// Next is the number that the next Service to be created will have.
func (c *Cluster) Next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size.Services + c.created
}
