package clusters

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Random is a cluster that changes at random.
type Random struct {
	*rand.Rand
	// many is the maximum number of Services.
	many     int
	services map[int]*cluster.Service
	node     *cluster.Node
	opts     *plan.Options
	snapshot *cluster.Snapshot
	last     *plan.Plan
}

// NewRandom returns an empty cluster that will have up to that many Services. The seed determines all changes.
func NewRandom(seed uint64, many int) *Random {
	return &Random{
		Rand:     rand.New(rand.NewPCG(seed, 7)),
		many:     many,
		services: map[int]*cluster.Service{},
		node:     node(11, 0),
		opts: &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true},
			LocalTraffic: plan.LocalTraffic{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
			Balancing:    plan.Balancing{On: true, Slots: 4}, Fences: plan.Fences{On: true}},
	}
}

// node returns a node with a primary address of each family, which ends in a number, and several other addresses.
func node(number byte, others int) *cluster.Node {
	addrs := []netip.Addr{netip.AddrFrom4([4]byte{172, 18, 0, number}), netip.MustParseAddr(fmt.Sprintf("fd00:172:18::%x", number))}
	n := &cluster.Node{Name: "n", Addresses: addrs, Interfaces: addrs}
	for i := range others {
		n.Interfaces = append(slices.Clone(n.Interfaces), netip.AddrFrom4([4]byte{172, 19, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00:172:19::%x", i)))
	}
	return n
}

// Step changes some Services, and now and then the node, and computes the next plan.
func (r *Random) Step() *plan.Plan {
	for range 1 + r.IntN(1+r.many/4) {
		number := r.IntN(r.many)
		if r.IntN(4) == 0 {
			delete(r.services, number)
		} else {
			r.services[number] = r.service(number)
		}
	}
	if r.IntN(10) == 0 {
		clear(r.services)
	}
	if r.IntN(6) == 0 {
		r.node = node(byte(11+r.IntN(2)), r.IntN(3))
	}
	services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()
	for _, s := range r.services {
		services.Set(s.Name, s)
	}
	r.snapshot = &cluster.Snapshot{Services: services.Map(), Node: r.node}
	if r.IntN(10) == 0 {
		r.snapshot.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	}
	r.last = plan.Compute(r.snapshot, r.opts, r.last)
	return r.last
}

// FromScratch computes the plan of the current cluster without the previous one.
func (r *Random) FromScratch() *plan.Plan { return plan.Compute(r.snapshot, r.opts, nil) }

func (r *Random) service(number int) *cluster.Service {
	s := &cluster.Service{
		Name:       cluster.ServiceName{Namespace: "ns", Name: fmt.Sprint("s", number)},
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)}), netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", number))},
		Ports: []cluster.ServicePort{
			{Name: "http", Protocol: cluster.TCP, Port: 80, NodePort: uint16(r.IntN(2) * (30000 + number))},
			{Name: "dns", Protocol: cluster.UDP, Port: 53},
		},
		InternalPolicy: cluster.Policy(r.IntN(2)),
		ExternalPolicy: cluster.Policy(r.IntN(2)),
		Algorithm:      cluster.Algorithm(max(0, r.IntN(7)-3)), // often random
		Affinity:       []time.Duration{0, 0, time.Second, 10 * time.Second, 3 * time.Hour}[r.IntN(5)],
	}
	if r.IntN(4) == 0 {
		s.Fence = &cluster.AskedFence{Fence: cluster.Fence{PerSecond: uint32(1 + r.IntN(3)), Open: uint32(r.IntN(2)), ClientPerSecond: uint32(r.IntN(2)), ClientOpen: uint32(r.IntN(2))}}
	}
	for port := range uint16(r.IntN(2) * r.many / 2) { // more ports on one address than fit in a leaf of a tree
		if number < 2 {
			s.Ports = append(s.Ports, cluster.ServicePort{Name: fmt.Sprint("p", port), Protocol: cluster.UDP, Port: 1000 + port})
		}
	}
	external := &cluster.External{}
	if r.IntN(3) == 0 { // a few addresses that several Services use
		external.LoadBalancerIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(3))}), netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", r.IntN(3)))}
		s.HealthCheckNodePort = uint16(32000 + number)
	}
	for text := range strings.FieldsSeq("0.0.0.0/0 10.0.0.0/8 10.244.0.0/16 192.0.2.7/32 172.18.0.0/16 fd00::/16 ::/0") {
		if r.IntN(6) == 0 {
			external.SourceRanges = append(external.SourceRanges, netip.MustParsePrefix(text))
		}
	}
	if r.IntN(4) > 0 {
		s.External = external
	}
	s.Slices = []*cluster.EndpointSlice{r.slice()}
	return s
}

// conditions are any but hints.
func (r *Random) conditions() cluster.Conditions {
	return cluster.Conditions(r.IntN(16)) | cluster.Conditions(r.IntN(2))*cluster.NoNodeName
}

func (r *Random) slice() *cluster.EndpointSlice {
	slice := &cluster.EndpointSlice{Name: "a", Ports: []cluster.EndpointPort{
		{Name: "dns", Protocol: cluster.UDP, Port: 53}, {Name: "http", Protocol: cluster.TCP, Port: 8080},
		{Name: "p50", Protocol: cluster.UDP, Port: 7}, {Name: "p7", Protocol: cluster.UDP, Port: 7},
	}}
	none, even := r.IntN(6) == 0, r.IntN(3) > 0
	weight := func() cluster.Weight {
		if even {
			return 0
		}
		return cluster.WeightOf(uint16(r.IntN(4)))
	}
	for i := range 24 {
		if none || r.IntN(3) > 0 {
			continue
		}
		slice.Endpoints = append(slice.Endpoints,
			cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 244, byte(i % 2), byte(i)}), Conditions: r.conditions(), Weight: weight()},
			cluster.Endpoint{Addr: netip.MustParseAddr(fmt.Sprintf("fd00:10:244::%x", i)), Conditions: r.conditions(), Weight: weight()})
	}
	return slice
}
