package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// addrRange is a range of addresses.
type addrRange struct{ first, last netip.Addr }

// mergeSources rewrites a match of source addresses as ranges, in which adjacent and overlapping ones are one: nft lists the
// intervals of a set like that. It returns the text unchanged if it cannot read it.
func mergeSources(match string) string {
	const operator = "saddr != "
	list := strings.Trim(strings.TrimPrefix(match, operator), "{ }")
	var all []addrRange
	for text := range strings.SplitSeq(list, ", ") {
		r, err := parseAddrRange(strings.TrimSpace(text))
		if err != nil {
			return match
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b addrRange) int { return a.first.Compare(b.first) })
	merged := all[:1]
	for _, r := range all[1:] {
		before := &merged[len(merged)-1]
		if next := before.last.Next(); next.IsValid() && next.Less(r.first) {
			merged = append(merged, r)
		} else if before.last.Less(r.last) {
			before.last = r.last
		}
	}
	texts := make([]string, len(merged))
	for i, r := range merged {
		texts[i] = fmt.Sprintf("%s-%s", r.first, r.last)
	}
	return operator + "{ " + strings.Join(texts, ", ") + " }"
}

// parseAddrRange parses an address, a prefix, or a range of addresses.
func parseAddrRange(text string) (r addrRange, err error) {
	if first, last, found := strings.Cut(text, "-"); found {
		if r.first, err = netip.ParseAddr(first); err == nil {
			r.last, err = netip.ParseAddr(last)
		}
		return r, err
	}
	if !strings.Contains(text, "/") {
		r.first, err = netip.ParseAddr(text)
		r.last = r.first
		return r, err
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return r, err
	}
	r.first = prefix.Masked().Addr()
	last := r.first.AsSlice()
	for bit := prefix.Bits(); bit < r.first.BitLen(); bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	r.last, _ = netip.AddrFromSlice(last)
	return r, nil
}
