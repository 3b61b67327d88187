package plan

import (
	"net/netip"
	"slices"
)

// disjoint sorts ranges and removes those within another one. Two ranges never overlap otherwise.
func disjoint(ranges []netip.Prefix) []netip.Prefix {
	for i, r := range ranges {
		ranges[i] = r.Masked()
	}
	slices.SortFunc(ranges, netip.Prefix.Compare) // by address, the larger range first
	kept := ranges[:0]
	for _, r := range ranges {
		if len(kept) == 0 || !kept[len(kept)-1].Contains(r.Addr()) {
			kept = append(kept, r)
		}
	}
	return kept
}

// covering returns the one of sorted, disjoint ranges that contains an address. A list may be long, and a search for stale
// flows asks for each of its clients.
func covering(ranges []netip.Prefix, addr netip.Addr) (covering netip.Prefix, found bool) {
	after, _ := slices.BinarySearchFunc(ranges, addr, func(r netip.Prefix, addr netip.Addr) int {
		if r.Addr().Compare(addr) <= 0 {
			return -1
		}
		return 1
	})
	if after == 0 || !ranges[after-1].Contains(addr) {
		return netip.Prefix{}, false
	}
	return ranges[after-1], true
}

// admits reports whether the source ranges of a route allow a client.
func (r *Route) admits(client netip.Addr) bool {
	_, found := covering(r.SourceRanges, client)
	return found || len(r.SourceRanges) == 0
}

// narrower reports whether source ranges may exclude a client that earlier ones admit. Without any, all are admitted.
func narrower(before, after []netip.Prefix) bool {
	if len(before) == 0 || len(after) == 0 {
		return len(after) > 0
	}
	return slices.ContainsFunc(before, func(was netip.Prefix) bool {
		is, found := covering(after, was.Addr())
		return !found || is.Bits() > was.Bits()
	})
}
