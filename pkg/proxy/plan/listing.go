package plan

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Listing is an entry of an EndpointSlice for one port of a Service, and what each traffic policy makes of it.
type Listing struct {
	Slice string
	// Port is the index of the Service's port.
	Port int
	// Endpoint has port 0 if the slice does not have the Service's port.
	Endpoint   netip.AddrPort
	Conditions cluster.Conditions
	// Weight is the endpoint's; 1 if weights are not honoured.
	Weight int
	Zones  cluster.Zones
	// Fates says under each policy whether connections are sent to the endpoint; the index is a cluster.Policy.
	Fates [2]Fate
}

// Fate is whether and why connections are not sent to an endpoint under a traffic policy.
type Fate uint8

// The fates.
const (
	// Used endpoints get connections.
	Used Fate = iota
	// NoSuchPort: the slice does not have a port with the name and protocol of the Service's port.
	NoSuchPort
	// WrongFamily: the Service has no cluster IP of the endpoint's family, or the node does not serve that family.
	WrongFamily
	// NotReady: the endpoint is not ready, nor serving while it terminates.
	NotReady
	// Duplicate: another entry for the same address and port is used.
	Duplicate
	// NotLocal: the endpoint is not on this node.
	NotLocal
	// Terminating: the endpoint still serves, but others are ready.
	Terminating
	// OtherNode: every ready endpoint has a hint for nodes, and this one has none for this node.
	OtherNode
	// OtherZone: every ready endpoint has a hint for zones, and this one has none for this node's zone.
	OtherZone
	// NoWeight: the endpoint's weight is 0.
	NoWeight
	// OwnClusterIP: the endpoint is the Service's own cluster IP, which is no endpoint.
	OwnClusterIP
)

func (f Fate) String() string {
	return [...]string{"Used", "NoSuchPort", "WrongFamily", "NotReady", "Duplicate", "NotLocal", "Terminating", "OtherNode", "OtherZone", "NoWeight", "OwnClusterIP"}[f]
}

// Why describes the fate in words.
func (f Fate) Why() string {
	return [...]string{
		"used",
		"the slice has no such port",
		"the Service is not served in this IP family",
		"not ready",
		"the same address is listed twice, and the other entry is used",
		"not on this node",
		"terminating, and other endpoints are ready",
		"hinted for other nodes",
		"hinted for other zones",
		"its weight is 0: it takes no new connections",
		"it is the Service's own cluster IP",
	}[f]
}

// Listings returns every entry of the Service's slices for each of its ports that are served ([Options].Limits), by port,
// then slice, in the order of the slice. There may be millions. It is empty if there is no such Service.
func (p *Plan) Listings(name cluster.ServiceName) iter.Seq[Listing] {
	return func(yield func(Listing) bool) {
		s, known := p.snapshot.Services.Get(name)
		decided, planned := p.Services.Get(name)
		if !known || !planned {
			return
		}
		for i := range s.Ports[:len(s.Ports)-int(decided.WithheldPorts)] {
			for listing := range p.portListings(s, i) {
				if !yield(listing) {
					return
				}
			}
		}
	}
}

// portListings returns the listings for the port of an index.
func (p *Plan) portListings(s *cluster.Service, index int) iter.Seq[Listing] {
	port := &s.Ports[index]
	choices := map[cluster.Family]*choice{}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if p.options.Serves(p.snapshot.Node, family) && s.InFamily(family) {
			choices[family] = newChoice(p.options.candidates(s, port, family), p.snapshot.Node.Zone)
		}
	}
	return func(yield func(Listing) bool) {
		for _, slice := range s.Slices {
			target, _ := slice.PortOf(port)
			for i := range slice.Endpoints {
				e := &slice.Endpoints[i]
				listing := Listing{Slice: slice.Name, Port: index, Conditions: e.Conditions, Weight: p.options.weight(e), Zones: e.Zones, Endpoint: netip.AddrPortFrom(e.Addr, target.Port)}
				for policy := range listing.Fates {
					listing.Fates[policy] = choices[cluster.FamilyOf(e.Addr)].fate(&candidate{listing.Endpoint, e, p.options.weight(e)}, cluster.Policy(policy))
				}
				if !yield(listing) {
					return
				}
			}
		}
	}
}

// choice is how the pools of one port in one family were chosen.
type choice struct {
	all   []candidate
	pools [2]*Pool // by cluster.Policy
}

func newChoice(all []candidate, zone string) *choice {
	return &choice{all: all, pools: [2]*Pool{cluster.PolicyCluster: clusterPool(all, zone), cluster.PolicyLocal: localPool(all)}}
}

// fate returns what becomes of an entry of a slice under a policy. c is nil if the family is not served.
func (c *choice) fate(e *candidate, policy cluster.Policy) Fate {
	switch {
	case e.addr.Port() == 0:
		return NoSuchPort
	case c == nil:
		return WrongFamily
	}
	at, found := slices.BinarySearchFunc(c.all, e.addr, func(c candidate, addr netip.AddrPort) int { return c.addr.Compare(addr) })
	switch {
	case !found:
		return OwnClusterIP
	case c.all[at].Endpoint != e.Endpoint:
		return Duplicate
	case c.pools[policy].has(e.addr):
		return Used
	case e.rank() <= unusable:
		return NotReady
	case e.weight == 0:
		return NoWeight
	case policy == cluster.PolicyLocal && !e.Conditions.Has(cluster.Local):
		return NotLocal
	case !e.Conditions.Has(cluster.Ready):
		return Terminating
	case c.pools[policy].Reason == SameNode:
		return OtherNode
	default:
		return OtherZone
	}
}
