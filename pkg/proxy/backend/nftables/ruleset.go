package nftables

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// ruleset is one family's table as a value: what it should hold, as render makes it, or what it does hold,
// as apply leaves it and read finds it. It never changes.
//
// Which endpoint sits in which slot is not part of its meaning: every slot has the same chance. So render
// puts a pool in order, diff leaves in place what may stay, and equal compares pools as sets.
type ruleset struct {
	family   cluster.Family
	skeleton *skeleton
	// fingerprint is the kernel's table's, elements left out, when it was last known to be as it should.
	fingerprint string
	frontends   cluster.Map[plan.Frontend, *entry]
	// books are what the frontends need.
	books
	// clusterIPs and hairpins are keyed by address; those of the other family are not in the table.
	clusterIPs, hairpins cluster.Map[netip.Addr, int]
	nodeAddrs            []netip.Addr
	// strays are elements in the kernel that have no place in the layout, leftovers chains and sets.
	strays    []stray
	leftovers leftovers
	// from is the plan that was rendered; nil when the ruleset was read from the kernel.
	from *plan.Plan
}

// entry is all that the table holds about one frontend.
type entry struct {
	// comment names the Service for whoever reads the listing.
	comment string
	// goes is the verdict in the frontend map.
	goes target
	// refused tells, of a frontend that goes nowhere, which of the sets it is in: plan.Reject or plan.Drop.
	refused plan.Verdict
	// from is the verdict in the firewall map, and sources what it lets in; these are not read from the kernel.
	from    target
	sources *sources
	// remember is the verdict in the map of frontends whose clients stay with their endpoints.
	remember target
	// onLocalhost tells that connections to the node port are rejected on loopback addresses.
	onLocalhost bool
	// slots are the endpoint map's elements, local those of the local endpoint map. In what was read from the
	// kernel an invalid address marks a slot that is missing.
	slots, local []netip.AddrPort
}

// stray is an element that has no place in the layout.
type stray struct {
	set string
	key string
}

// leftovers are what an earlier version, or another program in its place, left in the table.
type leftovers struct {
	chains, sets, maps []string
}

func (l leftovers) none() bool { return len(l.chains)+len(l.sets)+len(l.maps) == 0 }

// render makes the ruleset of a plan for one family. have is what the table holds: frontends whose route is
// the one that have was rendered from are taken over as they are. Without it (nil) nothing is, and the
// result is equal.
func render(family cluster.Family, p *plan.Plan, opts Options, have *ruleset) *ruleset {
	if have == nil || have.from == nil {
		have = &ruleset{from: &plan.Plan{Node: &plan.Node{}}}
	}
	want := &ruleset{
		family:     family,
		skeleton:   have.skeleton,
		clusterIPs: p.ClusterIPs,
		hairpins:   p.Hairpins,
		from:       p,
	}
	if p.Node != have.from.Node {
		want.skeleton = newWriter(family, p.Node, opts).skeleton()
	}
	for _, addr := range p.Node.NodePortAddrs {
		if cluster.FamilyOf(addr) == family && !addr.IsLoopback() {
			want.nodeAddrs = append(want.nodeAddrs, addr)
		}
	}
	frontends, books := have.frontends.Edit(), have.edit()
	for frontend, change := range cluster.Changes(have.from.Frontends, p.Frontends) {
		if frontend.Family() != family {
			continue
		}
		old, _ := frontends.Get(frontend)
		if !change.Is {
			frontends.Delete(frontend)
			books.replace(old, nil)
			continue
		}
		now := renderRoute(change.After)
		frontends.Set(frontend, now)
		books.replace(old, now)
	}
	want.frontends, want.books = frontends.Map(), books.close()
	return want
}

// renderRoute makes the elements of one frontend.
func renderRoute(r *plan.Route) *entry {
	e := &entry{comment: nft.CutComment(r.Name), slots: r.Pool.Endpoints, onLocalhost: r.RejectOnLocalhost}
	t := target{nodePort: r.Frontend.IsNodePort(), n: uint32(len(r.Pool.Endpoints))}
	switch {
	case r.ShortCut != nil:
		e.slots, e.local = r.ShortCut.Endpoints, r.Pool.Endpoints
		t.kind, t.n, t.m = local, uint32(len(e.slots)), uint32(len(e.local))
	case r.Verdict != plan.Balance:
		t = target{}
	case r.Masquerade == plan.MasqueradeAll:
		t.kind = external
	case r.Masquerade == plan.MasqueradeOffCluster:
		t.kind = internal
	default:
		t.kind = pick
	}
	e.goes = t
	if r.Verdict == plan.Reject || r.Verdict == plan.Drop {
		e.refused = r.Verdict
	}
	e.stick(r)
	e.guard(r)
	return e
}

// equal tells whether two rulesets mean the same.
func (r *ruleset) equal(o *ruleset) bool {
	for _, change := range cluster.Changes(r.frontends, o.frontends) {
		if !change.Was || !change.Is || !change.Before.equal(change.After) {
			return false
		}
	}
	return r.skeleton != nil && o.skeleton != nil && r.skeleton.digest == o.skeleton.digest &&
		r.books.equal(&o.books) &&
		sameKeys(r.clusterIPs, o.clusterIPs, r.holds) &&
		sameKeys(r.hairpins, o.hairpins, r.holds) &&
		slices.Equal(r.nodeAddrs, o.nodeAddrs) &&
		len(r.strays)+len(o.strays) == 0 && r.leftovers.none() && o.leftovers.none()
}

// holds tells whether an address is of the table's family.
func (r *ruleset) holds(addr netip.Addr) bool { return cluster.FamilyOf(addr) == r.family }

func (e *entry) equal(o *entry) bool {
	return e == o || e.comment == o.comment && e.goes == o.goes && e.refused == o.refused && e.from == o.from && e.remember == o.remember &&
		e.onLocalhost == o.onLocalhost && sameSet(e.slots, o.slots) && sameSet(e.local, o.local)
}

// sameSet compares pools without regard to slots.
func sameSet(a, b []netip.AddrPort) bool {
	if slices.Equal(a, b) {
		return true
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.AddrPort.Compare)
	slices.SortFunc(b, netip.AddrPort.Compare)
	return slices.Equal(a, b)
}
