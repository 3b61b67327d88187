package nftables

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// patch is what to write to get from one ruleset to another.
type patch struct {
	// skeleton is set when the table's fixed part must be written.
	skeleton *skeleton
	// addChains and rewriteChains, which exist already, are needed by the operations; delChains by nothing
	// after them.
	addChains, rewriteChains, delChains []target
	frontends                           []frontendChange
	sets                                []op
	// addTimeouts and delTimeouts are affinity maps that come and go; in those of forget, clients may be
	// remembered with endpoints that left.
	addTimeouts, delTimeouts, forget []timeout
	// strays and leftovers are removed: those before anything is added, these when nothing uses them any more.
	strays    []stray
	leftovers leftovers
	// after is the ruleset that the table holds when the patch has been written.
	after *ruleset
}

// frontendChange is an entry before and after; the zero entry is none.
type frontendChange struct {
	frontend      plan.Frontend
	before, after *entry
}

// verb is what is done to an element.
type verb uint8

const (
	add verb = iota
	replace
	remove
)

// op is one operation on one element.
type op struct {
	verb verb
	set  string
	// frontend is the key in maps of frontends, addr in sets of addresses.
	frontend plan.Frontend
	addr     netip.Addr
	slot     int
	// pool and to are the key in the set of sticky endpoints.
	pool poolID
	// to, goes and comment are the element's data where it has any.
	to      netip.AddrPort
	goes    target
	comment string
}

// diff works out the patch from what a table holds to what it should. Each endpoint that stays keeps its
// slot, so the patch of one endpoint's change is a few elements however large the pool.
func diff(have, want *ruleset) *patch {
	p := &patch{strays: have.strays, leftovers: have.leftovers}
	after := *want
	after.fingerprint = have.fingerprint // until apply writes something that it covers
	if have.skeleton == nil || have.skeleton.digest != want.skeleton.digest {
		p.skeleton = want.skeleton
	}
	p.frontends = make([]frontendChange, 0, max(0, want.frontends.Len()-have.frontends.Len()))
	frontends, nothing := want.frontends.Edit(), &entry{}
	for frontend, change := range cluster.Changes(have.frontends, want.frontends) {
		c := frontendChange{frontend: frontend, before: change.Before, after: change.After}
		switch {
		case !change.Was:
			c.before = nothing // so any slots are right, and the plan's own can be kept
		case !change.Is:
			c.after = nothing
		default:
			c.after = place(c.before, c.after)
			frontends.Set(frontend, c.after)
		}
		if c.before != c.after {
			p.frontends = append(p.frontends, c)
		}
	}
	after.frontends = frontends.Map()
	for t, change := range cluster.Changes(have.targets, want.targets) {
		switch {
		case !change.Is:
			p.delChains = append(p.delChains, t)
		case !change.Was:
			p.addChains = append(p.addChains, t)
		}
	}
	if p.skeleton != nil { // no chain that is there can be trusted
		for t := range want.targets.All() {
			if _, exists := have.targets.Get(t); exists {
				p.rewriteChains = append(p.rewriteChains, t)
			}
		}
	}
	slices.Reverse(p.delChains) // a chain goes before those that it goes to
	p.members(setClusterIPs, have.clusterIPs, want.clusterIPs, want.holds)
	p.members(setHairpins, have.hairpins, want.hairpins, want.holds)
	p.affinity(have, want)
	for _, addr := range want.nodeAddrs {
		if !slices.Contains(have.nodeAddrs, addr) {
			p.sets = append(p.sets, op{verb: add, set: setNodeAddrs, addr: addr})
		}
	}
	for _, addr := range have.nodeAddrs {
		if !slices.Contains(want.nodeAddrs, addr) {
			p.sets = append(p.sets, op{verb: remove, set: setNodeAddrs, addr: addr})
		}
	}
	p.after = &after
	return p
}

// members adds what to do to a set of addresses.
func (p *patch) members(set string, have, want cluster.Map[netip.Addr, int], holds func(netip.Addr) bool) {
	p.sets = slices.Grow(p.sets, max(0, want.Len()-have.Len()))
	for addr, change := range cluster.Changes(have, want) {
		switch {
		case !holds(addr):
		case !change.Was:
			p.sets = append(p.sets, op{verb: add, set: set, addr: addr})
		case !change.Is:
			p.sets = append(p.sets, op{verb: remove, set: set, addr: addr})
		}
	}
}

// place puts the endpoints of want into slots, those that have holds already where they are. It returns
// have itself when nothing differs.
func place(have, want *entry) *entry {
	placed := *want
	placed.slots = assign(have.slots, want.slots)
	placed.local = assign(have.local, want.local)
	if placed.comment == have.comment && placed.goes == have.goes && placed.refused == have.refused &&
		placed.from == have.from && placed.remember == have.remember && placed.onLocalhost == have.onLocalhost &&
		slices.Equal(placed.slots, have.slots) && slices.Equal(placed.local, have.local) {
		return have
	}
	return &placed
}

// assign orders a pool: endpoints that sit in a slot that remains stay there, the others fill the gaps.
func assign(have, pool []netip.AddrPort) []netip.AddrPort {
	if len(have) == 0 {
		return pool
	}
	sorted := pool // as the plan has it
	if !slices.IsSortedFunc(sorted, netip.AddrPort.Compare) {
		sorted = slices.SortedFunc(slices.Values(pool), netip.AddrPort.Compare)
	}
	slots := make([]netip.AddrPort, len(sorted))
	seated := make([]bool, len(sorted))
	for slot, endpoint := range have[:min(len(have), len(slots))] {
		at, found := slices.BinarySearchFunc(sorted, endpoint, netip.AddrPort.Compare)
		if found && !seated[at] {
			slots[slot], seated[at] = endpoint, true
		}
	}
	next := 0
	for slot := range slots {
		if slots[slot].IsValid() {
			continue
		}
		for seated[next] {
			next++
		}
		slots[slot], seated[next] = sorted[next], true
	}
	return slots
}

// empty tells whether there is nothing to write.
func (p *patch) empty() bool {
	return p.skeleton == nil && p.leftovers.none() &&
		len(p.addChains)+len(p.rewriteChains)+len(p.delChains)+len(p.frontends)+len(p.sets)+len(p.strays)+
			len(p.addTimeouts)+len(p.delTimeouts)+len(p.forget) == 0
}

// ops yields the operations on elements in an order that is right at every step: first whatever makes slots
// complete and guards the frontend, then the verdicts that count on it, then what no verdict counts on any more.
func (p *patch) ops() iter.Seq[op] {
	return func(yield func(op) bool) {
		for _, o := range p.sets {
			if !yield(o) {
				return
			}
		}
		for _, phase := range []func(*frontendChange, func(op) bool) bool{fillSlots, setGuards, setVerdicts, clearGuards, clearSlots, setLocalhost} {
			for i := range p.frontends {
				if !phase(&p.frontends[i], yield) {
					return
				}
			}
		}
	}
}

// slotMaps names the maps that hold a frontend's slots and its local ones.
func slotMaps(nodePort bool) (slots, local string) {
	if nodePort {
		return mapNodePortEnds, mapNodePortLocal
	}
	return mapEndpoints, mapLocal
}

// verdictMaps names the maps that hold a frontend's verdicts.
func verdictMaps(f plan.Frontend) (goes, sticky string) {
	if f.IsNodePort() {
		return mapNodePorts, mapStickyPorts
	}
	return mapServices, mapSticky
}

// refusalSets names the sets of frontends that no endpoint serves.
func refusalSets(f plan.Frontend) (rejected, dropped string) {
	if f.IsNodePort() {
		return setRejectedPorts, setDroppedPorts
	}
	return setRejected, setDropped
}

func fillSlots(c *frontendChange, yield func(op) bool) bool {
	slots, local := slotMaps(c.frontend.IsNodePort())
	fill := func(set string, before, after []netip.AddrPort) bool {
		for slot, to := range after {
			o := op{verb: add, set: set, frontend: c.frontend, slot: slot, to: to}
			if slot < len(before) && before[slot].IsValid() {
				if before[slot] == to {
					continue
				}
				o.verb = replace
			}
			if !yield(o) {
				return false
			}
		}
		return true
	}
	return fill(slots, c.before.slots, c.after.slots) && fill(local, c.before.local, c.after.local)
}

// setVerdict writes one verdict of a frontend.
func (c *frontendChange) setVerdict(set string, before, after target, yield func(op) bool) bool {
	o := op{verb: replace, set: set, frontend: c.frontend, goes: after, comment: c.after.comment}
	switch {
	case before == after && (c.before.comment == c.after.comment || after.kind == none):
		return true
	case before.kind == none:
		o.verb = add
	case after.kind == none:
		o.verb = remove
	}
	return yield(o)
}

func setVerdicts(c *frontendChange, yield func(op) bool) bool {
	goes, sticky := verdictMaps(c.frontend)
	if !c.setVerdict(sticky, c.before.remember, c.after.remember, yield) || !c.setVerdict(goes, c.before.goes, c.after.goes, yield) {
		return false
	}
	rejected, dropped := refusalSets(c.frontend)
	if c.after.refused == plan.Drop { // into the one set before out of the other
		return c.setRefusal(dropped, plan.Drop, yield) && c.setRefusal(rejected, plan.Reject, yield)
	}
	return c.setRefusal(rejected, plan.Reject, yield) && c.setRefusal(dropped, plan.Drop, yield)
}

// setRefusal puts a frontend into the set of those with a verdict, or takes it out.
func (c *frontendChange) setRefusal(set string, verdict plan.Verdict, yield func(op) bool) bool {
	was, is := c.before.refused == verdict, c.after.refused == verdict
	o := op{set: set, frontend: c.frontend, comment: c.after.comment}
	switch {
	case !was && !is, was && is && c.before.comment == c.after.comment:
		return true
	case was && is:
		o.verb = replace
	case was:
		o.verb = remove
	}
	return yield(o)
}

// setGuards lets in no more than the source ranges before anything leads to the frontend.
func setGuards(c *frontendChange, yield func(op) bool) bool {
	return c.after.from.kind == none || c.setVerdict(mapFirewall, c.before.from, c.after.from, yield)
}

func clearGuards(c *frontendChange, yield func(op) bool) bool {
	return c.after.from.kind != none || c.setVerdict(mapFirewall, c.before.from, c.after.from, yield)
}

// setLocalhost writes whether a node port is rejected on loopback addresses.
func setLocalhost(c *frontendChange, yield func(op) bool) bool {
	o := op{verb: add, set: setOnLocalhost, frontend: c.frontend}
	if c.before.onLocalhost {
		o.verb = remove
	}
	return c.before.onLocalhost == c.after.onLocalhost || yield(o)
}

func clearSlots(c *frontendChange, yield func(op) bool) bool {
	slots, local := slotMaps(c.frontend.IsNodePort())
	empty := func(set string, before, after []netip.AddrPort) bool {
		for slot := len(after); slot < len(before); slot++ {
			if before[slot].IsValid() && !yield(op{verb: remove, set: set, frontend: c.frontend, slot: slot}) {
				return false
			}
		}
		return true
	}
	return empty(slots, c.before.slots, c.after.slots) && empty(local, c.before.local, c.after.local)
}
