package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Reason is why a Pool has its endpoints.
type Reason uint8

// The reasons, in the order in which they are considered.
const (
	// SameNode: every ready endpoint has a hint for nodes, and these have one for this node (KEP-3015).
	SameNode Reason = iota
	// SameZone: every ready endpoint has a hint for zones, and these have one for this node's zone (KEP-2433).
	SameZone
	// AllReady: all ready endpoints of the Service.
	AllReady
	// AllTerminating: no endpoint is ready; these are serving while they terminate (KEP-1669).
	AllTerminating
	// LocalReady: the ready endpoints on this node.
	LocalReady
	// LocalTerminating: no endpoint on this node is ready; these are serving while they terminate.
	LocalTerminating
	// NoLocalEndpoints: the Service has usable endpoints, but none on this node.
	NoLocalEndpoints
	// NoEndpoints: the Service has no usable endpoint anywhere.
	NoEndpoints
)

func (r Reason) String() string {
	return [...]string{
		"the ready endpoints hinted for this node",
		"the ready endpoints hinted for this zone",
		"all ready endpoints",
		"no endpoint is ready: those that still serve while terminating",
		"the ready endpoints on this node",
		"no endpoint on this node is ready: those that still serve while terminating",
		"no usable endpoint on this node",
		"no usable endpoint",
	}[r]
}

// candidate is an endpoint that serves one port of a Service.
type candidate struct {
	addr netip.AddrPort
	*cluster.Endpoint
	// weight is 0 if it takes no new connections.
	weight int
}

// unusable is the highest rank of an endpoint that no pool contains.
const unusable = 2

// rank orders several entries for the same address: ready before serving and terminating before unusable, and among equals
// local first, then those that name no node.
func (c *candidate) rank() int {
	rank := 0
	switch {
	case c.Conditions.Has(cluster.Ready):
		rank = 6
	case c.Conditions.Has(cluster.Serving | cluster.Terminating):
		rank = 3
	}
	switch {
	case c.Conditions.Has(cluster.Local):
		rank += 2
	case c.Conditions.Has(cluster.NoNodeName):
		rank++
	}
	return rank
}

// candidates returns the endpoints of one family that serve a port, sorted and without duplicates. If an address is
// listed several times the entry with the highest rank is used, and among equals the one with the smallest weight: a pod's address may also be listed for a deleted pod
// that had it before. The Service's own cluster IP is none: a packet that is sent to it once more is not translated, so that no rule of
// iptables would stop it where the network returns it.
func (o *Options) candidates(s *cluster.Service, port *cluster.ServicePort, family cluster.Family) []candidate {
	var all []candidate
	for _, slice := range s.Slices {
		target, ok := slice.PortOf(port)
		if !ok {
			continue
		}
		all = slices.Grow(all, len(slice.Endpoints))
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			if cluster.FamilyOf(endpoint.Addr) == family && !slices.Contains(s.ClusterIPs, endpoint.Addr) {
				all = append(all, candidate{netip.AddrPortFrom(endpoint.Addr, target.Port), endpoint, o.weight(endpoint)})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if c := a.addr.Compare(b.addr); c != 0 {
			return c
		}
		return cmp.Or(b.rank()-a.rank(), a.weight-b.weight)
	})
	return slices.CompactFunc(all, func(a, b candidate) bool { return a.addr == b.addr })
}

// weight returns the weight of an endpoint.
func (o *Options) weight(e *cluster.Endpoint) int {
	if !o.Balancing.On {
		return 1
	}
	return e.Weight.Value()
}

// test is a condition on a candidate.
type test func(*candidate) bool

func has(all cluster.Conditions) test {
	return func(c *candidate) bool { return c.Conditions.Has(all) }
}

// poolRule is one way to choose a pool: the endpoints that match takes. It applies only if every ready endpoint matches
// given (nil is no condition) and if at least one endpoint matches takes; otherwise the next rule is tried.
type poolRule struct {
	reason Reason
	takes  test
	given  test
}

// clusterPool chooses from the endpoints of the whole cluster.
func clusterPool(all []candidate, zone string) *Pool {
	return choose(all, NoEndpoints,
		poolRule{SameNode, has(cluster.Ready | cluster.ThisNode), has(cluster.NodeHint)},
		poolRule{SameZone,
			func(c *candidate) bool { return c.Conditions.Has(cluster.Ready) && c.Zones.Has(zone) },
			func(c *candidate) bool { return c.Zones.Any() }},
		poolRule{AllReady, has(cluster.Ready), nil},
		poolRule{AllTerminating, has(cluster.Serving | cluster.Terminating), nil})
}

// localPool chooses from the endpoints on this node and ignores hints.
func localPool(all []candidate) *Pool {
	none := NoEndpoints
	if slices.ContainsFunc(all, func(c candidate) bool { return c.rank() > unusable && c.weight > 0 }) {
		none = NoLocalEndpoints
	}
	return choose(all, none,
		poolRule{LocalReady, has(cluster.Local | cluster.Ready), nil},
		poolRule{LocalTerminating, has(cluster.Local | cluster.Serving | cluster.Terminating), nil})
}

// choose applies the first rule that yields an endpoint; none is the reason if no rule does.
func choose(all []candidate, none Reason, rules ...poolRule) *Pool {
	for _, r := range rules {
		if r.given != nil && !everyReady(all, r.given) {
			continue
		}
		takes := func(c *candidate) bool { return c.weight > 0 && r.takes(c) }
		if endpoints := addrsOf(all, takes); len(endpoints) > 0 {
			pool := &Pool{Endpoints: endpoints, Reason: r.reason}
			if weights := weightsOf(all, takes); weights != nil {
				pool.Spread = &Spread{Weights: weights}
			}
			return pool
		}
	}
	return &Pool{Reason: none}
}

func everyReady(all []candidate, passes test) bool {
	for i := range all {
		if all[i].Conditions.Has(cluster.Ready) && !passes(&all[i]) {
			return false
		}
	}
	return true
}

// addrsOf returns the addresses of the candidates that pass, in one allocation of the right size.
func addrsOf(all []candidate, passes test) []netip.AddrPort {
	n := 0
	for i := range all {
		if passes(&all[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	addrs := make([]netip.AddrPort, 0, n)
	for i := range all {
		if passes(&all[i]) {
			addrs = append(addrs, all[i].addr)
		}
	}
	return addrs
}
