package nftables

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// sources is a list of source ranges, of which none holds another, sorted.
type sources struct {
	ranges []netip.Prefix
}

// guard lets only the route's source ranges use an entry. The chain that does bears the list's digest in its
// name: Services with the same list share it, and one that changes is another chain.
func (e *entry) guard(r *plan.Route) {
	if len(r.SourceRanges) == 0 {
		return
	}
	list := &sources{ranges: disjoint(r.SourceRanges)}
	if list.ranges[0].Bits() == 0 {
		return // everybody may
	}
	text := sha256.New()
	for _, r := range list.ranges {
		fmt.Fprintln(text, r)
	}
	e.sources = list
	e.from = target{kind: from, id: binary.BigEndian.Uint64(text.Sum(nil))}
}

// disjoint sorts ranges and leaves out those that another one holds. Two prefixes never overlap otherwise.
func disjoint(ranges []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, len(ranges))
	for i, r := range ranges {
		sorted[i] = r.Masked()
	}
	slices.SortFunc(sorted, netip.Prefix.Compare) // by address, the larger range first
	kept := sorted[:0]
	for _, r := range sorted {
		if len(kept) == 0 || !kept[len(kept)-1].Contains(r.Addr()) {
			kept = append(kept, r)
		}
	}
	return kept
}

// fromChain drops what comes from elsewhere: one lookup, however long the list.
func (w *writer) fromChain(t target, list *sources) chain {
	texts := make([]string, len(list.ranges))
	for i, r := range list.ranges {
		texts[i] = r.String()
	}
	return chain{name: t.name(), rules: []string{w.ip + " saddr != { " + strings.Join(texts, ", ") + " } drop"}}
}
