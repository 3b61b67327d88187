package nftables

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// maxSlots bounds the slots of a frontend that are believed when a table is read, maxBelieved those that room
// is made for before they are seen.
const maxSlots, maxBelieved = 1 << 20, 1 << 10

// layoutComment is what the chain "layout" says: the digest of the skeleton that was written, and the
// fingerprint that the kernel's table had then.
func layoutComment(digest, fingerprint string) string { return digest + " " + fingerprint }

// largeSet is the number of elements from which on a set is read by keys that it should have, where they can be
// told: the kernel's time for reading all of a set grows with the square of its size, and passes that of
// finding as many keys about here.
const largeSet = 50_000

// read makes a ruleset of what the kernel's table holds. Its skeleton is nil unless it is, to the letter,
// what this program or an equal one before it wrote.
func read(ctx context.Context, table nft.Table, family cluster.Family) (*ruleset, error) {
	return readBy(ctx, table, family, largeSet)
}

// readBy reads with another idea of what a large set is; that changes the time and never the result.
func readBy(ctx context.Context, table nft.Table, family cluster.Family, large int) (*ruleset, error) {
	r := &reader{ctx: ctx, table: table, decoder: decoder{family}, entries: map[plan.Frontend]*entry{},
		large: large, out: &ruleset{family: family}}
	objects, err := table.Objects(ctx)
	if err != nil || !objects.Exists {
		return r.out, err
	}
	if err := r.skeleton(objects); err != nil {
		return nil, err
	}
	slices.SortStableFunc(objects.Sets, func(a, b nft.Set) int { return cmp.Compare(phase(a.Name), phase(b.Name)) })
	for _, set := range objects.Sets {
		if r.err == nil {
			r.elements(set)
		}
	}
	frontends := r.out.frontends.Edit()
	for frontend, e := range r.entries {
		frontends.Set(frontend, e)
	}
	r.out.frontends = frontends.Map()
	return r.out, r.err
}

// phase puts sets in an order in which each can be told by those before it: the verdicts tell how many slots
// a frontend has, and the slots which endpoints there are.
func phase(set string) int {
	switch set {
	case mapEndpoints, mapNodePortEnds, mapLocal, mapNodePortLocal:
		return 1
	case setHairpins, setClusterIPs:
		return 2
	}
	return 0
}

// reader is the work of reading one table.
type reader struct {
	decoder
	ctx     context.Context
	table   nft.Table
	large   int
	entries map[plan.Frontend]*entry
	out     *ruleset
	err     error
}

// skeleton finds out whether the fixed part is known, and which sized chains there are.
func (r *reader) skeleton(objects nft.Objects) error {
	ours := map[string]bool{}
	w := newWriter(r.family, &plan.Node{}, Options{})
	for _, c := range append(w.baseChains(), w.sharedChains()...) {
		ours[c.name] = true
	}
	fingerprint, err := r.table.Fingerprint(r.ctx, chainLayout)
	if err != nil {
		return err
	}
	targets := r.out.targets.Edit()
	for _, c := range objects.Chains {
		t, err := parseTarget(c.Name)
		switch {
		case c.Name == chainLayout:
			if digest, recorded, _ := strings.Cut(c.Comment, " "); recorded == fingerprint {
				r.out.skeleton, r.out.fingerprint = &skeleton{digest: digest}, fingerprint
			}
		case ours[c.Name]:
		case err == nil:
			targets.Set(t, 1)
		default:
			r.out.leftovers.chains = append(r.out.leftovers.chains, c.Name)
		}
	}
	r.out.targets = targets.Map()
	return nil
}

// elements reads what a set holds.
func (r *reader) elements(set nft.Set) {
	if t, ok := parseTimeout(set.Name); ok && set.Map {
		timeouts := r.out.timeouts.Edit()
		timeouts.Set(t, 1)
		r.out.timeouts = timeouts.Map()
		return // which clients it remembers is the packets' business
	}
	var take func(nft.Element) error
	var keys iter.Seq[[]byte]
	nodePort := strings.Contains(set.Name, "nodeport")
	switch set.Name {
	case mapServices, mapNodePorts, mapFirewall, mapSticky, mapStickyPorts:
		take = func(e nft.Element) error { return r.verdict(e, set.Name, nodePort) }
	case setRejected, setRejectedPorts:
		take = func(e nft.Element) error { return r.refusal(e, plan.Reject, nodePort) }
	case setDropped, setDroppedPorts:
		take = func(e nft.Element) error { return r.refusal(e, plan.Drop, nodePort) }
	case mapEndpoints, mapNodePortEnds, mapLocal, mapNodePortLocal:
		local := set.Name == mapLocal || set.Name == mapNodePortLocal
		keys = r.slotKeys(nodePort, local)
		take = func(e nft.Element) error { return r.slot(e, nodePort, local) }
	case setSticky:
		take = r.sticky
	case setOnLocalhost:
		take = r.onLocalhost
	case setClusterIPs:
		r.out.clusterIPs = r.members(set, false)
		return
	case setHairpins:
		r.out.hairpins = r.members(set, true)
		return
	case setNodeAddrs:
		for addr := range r.members(set, false).All() {
			r.out.nodeAddrs = append(r.out.nodeAddrs, addr)
		}
		return
	default:
		if set.Map {
			r.out.leftovers.maps = append(r.out.leftovers.maps, set.Name)
		} else {
			r.out.leftovers.sets = append(r.out.leftovers.sets, set.Name)
		}
		return
	}
	r.each(set, keys, take)
}

// each reads a set; an element that does not decode is a stray. keys are those that the set should have; nil
// where nobody can tell.
func (r *reader) each(set nft.Set, keys iter.Seq[[]byte], take func(nft.Element) error) {
	strays := len(r.out.strays)
	if keys != nil && set.Count >= r.large {
		found := r.takeAll(set.Name, r.table.Find(r.ctx, set.Name, keys), take)
		if r.err != nil || found == set.Count {
			return // all that there is was found
		}
	}
	// What was taken is taken again.
	r.out.strays = r.out.strays[:strays]
	r.takeAll(set.Name, r.table.Elements(r.ctx, set.Name), take)
}

// takeAll takes elements, and counts them.
func (r *reader) takeAll(set string, elements iter.Seq2[nft.Element, error], take func(nft.Element) error) (count int) {
	for e, err := range elements {
		if err != nil {
			r.err = fmt.Errorf("read %s: %w", set, err)
			return count
		}
		count++
		if take(e) != nil {
			r.out.strays = append(r.out.strays, stray{set: set, key: string(e.Key)})
		}
	}
	return count
}

// slotKeys are the keys of a slot map, told by the verdicts that count on them.
func (r *reader) slotKeys(nodePort, local bool) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var key [64]byte
		for frontend, e := range r.entries {
			n, m := e.goes.slots()
			if local {
				n = m
			}
			if frontend.IsNodePort() != nodePort {
				n = 0
			}
			for slot := range int(min(n, maxSlots)) {
				if !yield(appendSlot(appendFrontend(key[:0], frontend), slot)) {
					return
				}
			}
		}
	}
}

// memberKeys are the keys of a set of addresses: those of the frontends, or of the endpoints where they are
// pairs.
func (r *reader) memberKeys(pair bool) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var addrs []netip.Addr
		for frontend, e := range r.entries {
			if !pair {
				addrs = append(addrs, frontend.Addr)
				continue
			}
			for _, endpoint := range slices.Concat(e.slots, e.local) {
				if endpoint.IsValid() {
					addrs = append(addrs, endpoint.Addr())
				}
			}
		}
		slices.SortFunc(addrs, netip.Addr.Compare)
		var key [32]byte
		for _, addr := range slices.Compact(addrs) {
			k := appendAddr(key[:0], addr)
			if pair {
				k = appendAddr(k, addr)
			}
			if !yield(k) {
				return
			}
		}
	}
}

func (r *reader) entry(f plan.Frontend) *entry {
	e, ok := r.entries[f]
	if !ok {
		e = &entry{}
		r.entries[f] = e
	}
	return e
}

func (r *reader) verdict(element nft.Element, set string, nodePort bool) error {
	frontend, _, err := r.frontend(element.Key, nodePort, false)
	if err != nil {
		return err
	}
	t, err := parseTarget(element.Chain)
	if err != nil {
		return err
	}
	e := r.entry(frontend)
	e.comment = element.Comment
	switch set {
	case mapSticky, mapStickyPorts:
		e.remember = t
	case mapFirewall:
		e.from = t
	default:
		e.goes = t
	}
	return nil
}

// refusal reads a frontend that no endpoint serves. One that is in both sets is a stray in the other.
func (r *reader) refusal(element nft.Element, verdict plan.Verdict, nodePort bool) error {
	frontend, _, err := r.frontend(element.Key, nodePort, false)
	if err != nil {
		return err
	}
	e := r.entry(frontend)
	if e.refused != plan.Balance && e.refused != verdict {
		return fmt.Errorf("%v is to be refused in two ways", frontend)
	}
	e.comment, e.refused = element.Comment, verdict
	return nil
}

// onLocalhost reads a node port that is rejected on loopback addresses.
func (r *reader) onLocalhost(element nft.Element) error {
	frontend, _, err := r.frontend(element.Key, true, false)
	if err == nil {
		r.entry(frontend).onLocalhost = true
	}
	return err
}

// sticky reads an endpoint that clients may stay with.
func (r *reader) sticky(element nft.Element) error {
	pool, endpoint, err := r.decoder.sticky(element.Key)
	if err != nil {
		return err
	}
	m, _ := r.out.pools.Get(pool)
	pools := r.out.pools.Edit()
	pools.Set(pool, &members{users: 1, endpoints: append(slices.Clone(m.list()), endpoint)})
	r.out.pools = pools.Map()
	return nil
}

func (r *reader) slot(element nft.Element, nodePort, local bool) error {
	frontend, slot, err := r.frontend(element.Key, nodePort, true)
	if err != nil {
		return err
	}
	to, err := r.endpoint(element.Value)
	if err != nil {
		return err
	}
	if slot >= maxSlots {
		return fmt.Errorf("slot %d is out of range", slot)
	}
	e := r.entry(frontend)
	n, m := e.goes.slots()
	slots := &e.slots
	if local {
		slots, n = &e.local, m
	}
	if *slots == nil {
		*slots = make([]netip.AddrPort, 0, min(n, maxBelieved))
	}
	for len(*slots) <= slot {
		*slots = append(*slots, netip.AddrPort{})
	}
	(*slots)[slot] = to
	return nil
}

func (r *reader) members(set nft.Set, pair bool) cluster.Map[netip.Addr, int] {
	addrs := cluster.Map[netip.Addr, int]{}.Edit()
	r.each(set, r.memberKeys(pair), func(e nft.Element) error {
		addr, err := r.member(e.Key, pair)
		if err == nil {
			addrs.Set(addr, 1)
		}
		return err
	})
	return addrs.Map()
}
