package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// changeSize estimates how many elements the change of a Service writes, without deciding about it. Either version may be nil.
func changeSize(before, after *cluster.Service, balancing Balancing) int {
	if before == nil || after == nil || !before.SameSpec(after) {
		return bound(before)*balancing.perEndpoint(before) + bound(after)*balancing.perEndpoint(after)
	}
	had := make(map[string]*cluster.EndpointSlice, len(before.Slices))
	for _, slice := range before.Slices {
		had[slice.Name] = slice
	}
	endpoints := 0
	for _, slice := range after.Slices {
		endpoints += differingEndpoints(had[slice.Name], slice)
		delete(had, slice.Name)
	}
	for _, gone := range had {
		endpoints += len(gone.Endpoints)
	}
	return len(after.Ports)*addresses(after)*endpoints*balancing.perEndpoint(after) + bound(after)/decidedPerWritten
}

// differingEndpoints returns how many endpoints are only in one of two versions of a slice; before may be nil.
func differingEndpoints(before, after *cluster.EndpointSlice) int {
	switch {
	case before == after:
		return 0
	case before == nil:
		return len(after.Endpoints)
	case !slices.Equal(before.Ports, after.Ports):
		return len(before.Endpoints) + len(after.Endpoints)
	}
	count := make(map[cluster.Endpoint]int, len(before.Endpoints))
	for _, e := range before.Endpoints {
		count[e]++
	}
	common := 0
	for _, e := range after.Endpoints {
		if count[e] > 0 {
			count[e]--
			common++
		}
	}
	return len(before.Endpoints) + len(after.Endpoints) - 2*common
}

// routeSize returns how many elements the change of a route writes, about. Either may be nil.
func routeSize(before, after *Route) int {
	if before == nil || after == nil || !before.Affinity.alike(after.Affinity) || before.Masquerade != after.Masquerade {
		return 1 + before.elements() + after.elements()
	}
	size := 1 + differing(before.Pool, after.Pool) + differing(before.ShortCut, after.ShortCut)
	if a, b := before.Affinity, after.Affinity; a != nil && b != nil {
		size += differing(a.Everywhere, b.Everywhere) + differing(a.Here, b.Here)
	}
	if !slices.Equal(before.SourceRanges, after.SourceRanges) {
		size += len(before.SourceRanges) + len(after.SourceRanges)
	}
	if !ptr.Equal(before.Fence, after.Fence) {
		size += chainSize
	}
	return size
}

// elements returns the number of elements of a route, which may be nil.
func (r *Route) elements() int {
	if r == nil {
		return 0
	}
	n := len(r.Pool.Slots()) + len(r.ShortCut.Slots()) + len(r.SourceRanges)
	if a := r.Affinity; a != nil {
		n += chainSize + len(a.Everywhere.endpoints()) + len(a.Here.endpoints())
	}
	if r.Fence != nil {
		n += chainSize
	}
	return n
}

// chainSize is how many elements could be written instead of what session affinity or a fence needs by itself: sets and chains.
const chainSize = 100

// differing returns how many endpoints are only in one of two pools, which may be nil; if they are not spread evenly, how many slots differ.
func differing(a, b *Pool) int {
	if a == b {
		return 0
	}
	if a.uneven() || b.uneven() {
		one, other, n := a.Slots(), b.Slots(), 0
		for i := range max(len(one), len(other)) {
			if i >= len(one) || i >= len(other) || one[i] != other[i] {
				n++
			}
		}
		return n
	}
	one, other, common := a.endpoints(), b.endpoints(), 0
	for len(one) > 0 && len(other) > 0 {
		order := one[0].Compare(other[0])
		if order <= 0 {
			one = one[1:]
		}
		if order >= 0 {
			other = other[1:]
		}
		if order == 0 {
			common++
		}
	}
	return len(a.endpoints()) + len(b.endpoints()) - 2*common
}

// blend returns a route between two of the same frontend, of which one may be nil: as after the change, but in each of its pools only that
// many endpoints have been added or removed. It is nil if that is all of the change, or if packets to endpoints of the other version
// would need another treatment, or it would have another spread.
func blend(before, after *Route, limit int) *Route {
	if before != nil && after != nil && (before.Name != after.Name || before.Kind != after.Kind || before.Policy != after.Policy || before.Masquerade != after.Masquerade) {
		return nil
	}
	from, to := cmp.Or(before, &Route{}), cmp.Or(after, &Route{})
	if from.Pool.uneven() || to.Pool.uneven() || from.ShortCut.uneven() || to.ShortCut.uneven() {
		return nil
	}
	mixed, part := *cmp.Or(after, before), false
	pools := func(before, after *Pool) *Pool {
		pool, left := blendPools(before, after, limit)
		part = part || left <= 0
		return pool
	}
	mixed.Pool = pools(from.Pool, to.Pool)
	mixed.Verdict = verdict(mixed.Pool)
	mixed.ShortCut = nil
	if mixed.Policy == cluster.PolicyLocal && mixed.Kind != ClusterIP {
		if shortCut := pools(from.ShortCut, to.ShortCut); len(shortCut.Endpoints) > 0 {
			mixed.ShortCut = shortCut
		}
	}
	if mixed.Affinity != nil {
		affinity, had, has := *mixed.Affinity, cmp.Or(from.Affinity, &Affinity{}), cmp.Or(to.Affinity, &Affinity{})
		affinity.Everywhere, affinity.Here = pools(had.Everywhere, has.Everywhere), pools(had.Here, has.Here)
		mixed.Affinity = &affinity
	}
	if !part {
		return nil
	}
	return &mixed
}

// blendPools returns a pool between two, which may be nil: endpoints of the first are replaced by those of the second, up to a limit, and
// then others are added or removed. So most pools on the way have the same size. It also returns how much of the limit is left.
func blendPools(before, after *Pool, limit int) (*Pool, int) {
	without := func(pool, other *Pool) []netip.AddrPort {
		return slices.DeleteFunc(slices.Clone(pool.endpoints()), func(endpoint netip.AddrPort) bool { return other.has(endpoint) })
	}
	adds, removes := without(after, before), without(before, after)
	swaps := min(len(adds), len(removes), (limit+1)/2)
	add, remove := swaps, swaps
	if limit -= 2 * swaps; limit > 0 { // one of the lists is used up
		add, remove = min(len(adds), swaps+limit), min(len(removes), swaps+limit)
		limit -= add + remove - 2*swaps
	}
	gone := &Pool{Endpoints: removes[:remove]}
	mixed := append(without(before, gone), adds[:add]...)
	slices.SortFunc(mixed, netip.AddrPort.Compare)
	reason := NoEndpoints
	if after != nil && (len(after.Endpoints) > 0 || len(mixed) == 0) {
		reason = after.Reason
	} else if before != nil {
		reason = before.Reason
	}
	return &Pool{Endpoints: mixed, Reason: reason}, limit
}
