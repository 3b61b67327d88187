package iptables

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// sized is a cluster of any size whose Services all look alike.
type sized struct {
	services *cluster.Editor[cluster.ServiceName, *cluster.Service]
	opts     *plan.Options
	last     *plan.Plan
	cidrs    []netip.Prefix
}

func newSized(services, endpoints int) *sized {
	c := &sized{
		services: cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit(),
		opts:     &plan.Options{LocalTraffic: plan.LocalTraffic{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9")}}},
	}
	for number := range services {
		c.set(number, endpoints)
	}
	return c
}

// set gives a Service that many endpoints; a negative number is as many, one of them another.
func (c *sized) set(number, endpoints int) {
	first := 0
	if endpoints < 0 {
		first, endpoints = 1, -endpoints
	}
	slice := &cluster.EndpointSlice{Name: "a", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 8080}}}
	for i := range endpoints {
		slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: addrAt(10<<24, number*256+first+i), Conditions: cluster.Ready | cluster.Serving})
	}
	name := nameAt(number)
	c.services.Set(name, &cluster.Service{
		Name:       name,
		ClusterIPs: []netip.Addr{addrAt(172<<24, number)},
		Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}},
		Slices:     []*cluster.EndpointSlice{slice},
	})
}

func nameAt(number int) cluster.ServiceName {
	return cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("service-", number)}
}

// addrAt is the nth address after a base.
func addrAt(base uint32, n int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base+uint32(n))))
}

func (c *sized) plan() *plan.Plan {
	c.last = plan.Compute(&cluster.Snapshot{Services: c.services.Map(), Node: &cluster.Node{}, ServiceCIDRs: c.cidrs}, c.opts, c.last)
	return c.last
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}
