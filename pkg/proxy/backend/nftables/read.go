package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// maxSlots bounds the slots of a frontend that are believed when a table is read.
const maxSlots = 1 << 20

// layoutComment is what the chain "layout" says: the digest of the skeleton that was written, and the
// fingerprint that the kernel's table had then.
func layoutComment(digest, fingerprint string) string { return digest + " " + fingerprint }

// read makes a ruleset of what the kernel's table holds. Its skeleton is nil unless it is, to the letter,
// what this program or an equal one before it wrote.
func read(ctx context.Context, table nft.Table, family cluster.Family) (*ruleset, error) {
	r := &reader{ctx: ctx, table: table, decoder: decoder{family}, entries: map[plan.Frontend]*entry{},
		out: &ruleset{family: family}}
	objects, err := table.Objects(ctx)
	if err != nil || !objects.Exists {
		return r.out, err
	}
	if err := r.skeleton(objects); err != nil {
		return nil, err
	}
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

// reader is the work of reading one table.
type reader struct {
	decoder
	ctx     context.Context
	table   nft.Table
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
	nodePort := strings.Contains(set.Name, "nodeport")
	switch set.Name {
	case mapServices, mapNodePorts, mapUnserved, mapUnservedPorts, mapFirewall, mapSticky, mapStickyPorts:
		take = func(e nft.Element) error { return r.verdict(e, set.Name, nodePort) }
	case mapEndpoints, mapNodePortEnds, mapLocal, mapNodePortLocal:
		local := set.Name == mapLocal || set.Name == mapNodePortLocal
		take = func(e nft.Element) error { return r.slot(e, nodePort, local) }
	case setSticky:
		take = r.sticky
	case setClusterIPs:
		r.out.clusterIPs = r.members(set.Name, false)
		return
	case setHairpins:
		r.out.hairpins = r.members(set.Name, true)
		return
	case setNodeAddrs:
		for addr := range r.members(set.Name, false).All() {
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
	r.each(set.Name, take)
}

// each reads a set; an element that does not decode is a stray.
func (r *reader) each(set string, take func(nft.Element) error) {
	for e, err := range r.table.Elements(r.ctx, set) {
		if err != nil {
			r.err = fmt.Errorf("read %s: %w", set, err)
			return
		}
		if take(e) != nil {
			r.out.strays = append(r.out.strays, stray{set: set, key: string(e.Key)})
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
	case mapUnserved, mapUnservedPorts:
		e.refused = t
	case mapSticky, mapStickyPorts:
		e.remember = t
	case mapFirewall:
		e.from = t
	default:
		e.goes = t
	}
	return nil
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
	slots := &e.slots
	if local {
		slots = &e.local
	}
	for len(*slots) <= slot {
		*slots = append(*slots, netip.AddrPort{})
	}
	(*slots)[slot] = to
	return nil
}

func (r *reader) members(set string, pair bool) cluster.Map[netip.Addr, int] {
	addrs := cluster.Map[netip.Addr, int]{}.Edit()
	r.each(set, func(e nft.Element) error {
		addr, err := r.member(e.Key, pair)
		if err == nil {
			addrs.Set(addr, 1)
		}
		return err
	})
	return addrs.Map()
}
