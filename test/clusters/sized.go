package clusters

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Sized is a cluster of any size with similar Services: one TCP port, one cluster IP.
type Sized struct {
	Services     *cluster.Editor[cluster.ServiceName, *cluster.Service]
	ServiceCIDRs []netip.Prefix
	Options      *plan.Options
	// Last is the last plan.
	Last *plan.Plan
}

// NewSized returns a cluster with that many Services, with that many endpoints each.
func NewSized(services, endpoints int) *Sized {
	c := &Sized{
		Services: cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit(),
		Options:  &plan.Options{LocalTraffic: plan.LocalTraffic{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9")}}},
	}
	for number := range services {
		c.Set(number, endpoints)
	}
	return c
}

// Set sets the number of endpoints of a Service, up to 255; a negative number -n means n endpoints, one of them replaced.
func (c *Sized) Set(number, endpoints int) {
	first := 0
	if endpoints < 0 {
		first, endpoints = 1, -endpoints
	}
	slice := &cluster.EndpointSlice{Name: "a", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 8080}}}
	for i := range endpoints {
		slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: AddrAt(10<<24, number*256+first+i), Conditions: cluster.Ready | cluster.Serving})
	}
	name := NameAt(number)
	c.Services.Set(name, &cluster.Service{
		Name:       name,
		ClusterIPs: []netip.Addr{AddrAt(172<<24, number)},
		Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}},
		Slices:     []*cluster.EndpointSlice{slice},
	})
}

// Plan computes the plan of the current cluster.
func (c *Sized) Plan() *plan.Plan {
	c.Last = plan.Compute(&cluster.Snapshot{Services: c.Services.Map(), Node: &cluster.Node{}, ServiceCIDRs: c.ServiceCIDRs}, c.Options, c.Last)
	return c.Last
}

// NameAt returns the name of a Service.
func NameAt(number int) cluster.ServiceName {
	return cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("service-", number)}
}

// AddrAt returns the nth address after a base.
func AddrAt(base uint32, n int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base+uint32(n))))
}

// WithExternalIPs returns a cluster of Services with two ports each. Every tenth Service has an external IP, and every
// fifth a load balancer IP and a node port.
func WithExternalIPs(services int) *cluster.Snapshot {
	all := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()
	for n := range services {
		s := &cluster.Service{
			Name:       NameAt(n),
			ClusterIPs: []netip.Addr{AddrAt(172<<24, n), netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", n))},
			Ports:      []cluster.ServicePort{{Name: "http", Protocol: cluster.TCP, Port: 80}, {Name: "dns", Protocol: cluster.UDP, Port: 53}},
			Slices: []*cluster.EndpointSlice{{
				Name:  "a",
				Ports: []cluster.EndpointPort{{Name: "dns", Protocol: cluster.UDP, Port: 53}, {Name: "http", Protocol: cluster.TCP, Port: 8080}},
				Endpoints: []cluster.Endpoint{
					{Addr: AddrAt(10<<24, 2*n), Conditions: cluster.Ready | cluster.Serving},
					{Addr: AddrAt(10<<24, 2*n+1), Conditions: cluster.Ready | cluster.Serving | cluster.Local},
				},
			}},
		}
		if n%5 == 0 {
			s.External = &cluster.External{LoadBalancerIPs: []netip.Addr{AddrAt(203<<24, n)}}
			s.Ports[0].NodePort = uint16(30000 + n)
		}
		if n%10 == 0 {
			s.External.ExternalIPs = []netip.Addr{AddrAt(198<<24, n)}
		}
		all.Set(s.Name, s)
	}
	return &cluster.Snapshot{Services: all.Map(), Node: &cluster.Node{Name: "n", Addresses: []netip.Addr{netip.MustParseAddr("172.18.0.11")}}}
}

// WithoutEndpoints returns the same cluster without endpoints, with the external policy Local.
func WithoutEndpoints(snapshot *cluster.Snapshot) *cluster.Snapshot {
	services := snapshot.Services.Edit()
	for name, s := range snapshot.Services.All() {
		bare := *s
		bare.Slices, bare.ExternalPolicy = nil, cluster.PolicyLocal
		services.Set(name, &bare)
	}
	return &cluster.Snapshot{Services: services.Map(), Node: snapshot.Node}
}
