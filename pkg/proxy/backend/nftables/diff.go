package nftables

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// patch holds the writes that change the content of a table into the desired one.
type patch struct {
	// skeleton is set if the table's fixed part must be written.
	skeleton *skeleton
	// addChains and rewriteChains, which exist already, are written before the elements; delChains are deleted after them.
	addChains, rewriteChains, delChains []target
	// before and after are the contents to compare; frontends are the entries that differ.
	before, after *content
	frontends     []frontendChange
	// addSticky and delSticky are service ports whose affinity maps are to be created and deleted. The maps of the pools in
	// forget may contain clients of endpoints that left.
	addSticky, delSticky, forget []poolID
	// addDevices are added to the flowtable.
	addDevices []cluster.Device
	// strays and leftovers are removed: strays before anything is added, leftovers when they are no longer in use.
	strays    []stray
	leftovers leftovers
	// result is the state of the table after the patch.
	result *state
}

// frontendChange is an entry before and after; nil is none.
type frontendChange struct {
	frontend      plan.Frontend
	before, after *entry
}

// verb is the kind of an operation on an element.
type verb uint8

const (
	add verb = iota
	replace
	remove
)

// op is one operation on one element.
type op struct {
	verb verb
	set  *set
	element
}

// diff returns the patch. Each endpoint that stays keeps its slot, so a change of one endpoint takes a few elements,
// however large the pool.
func diff(have *state, want *desired) *patch {
	after := *want
	p := &patch{before: have.content(), after: &after.content, strays: have.strays, leftovers: have.leftovers,
		result: &state{holds: &after, fingerprint: have.fingerprint, objects: have.objects}} // until apply has written something that it covers
	if have.holds.skeleton == nil || have.holds.skeleton.digest != want.skeleton.digest {
		p.skeleton = want.skeleton
	}
	p.leftovers.sets = slices.DeleteFunc(slices.Clone(p.leftovers.sets), func(name string) bool {
		chain, meter := parseMeter(name)
		_, wanted := want.lists.Get(chain)
		return meter && wanted // only its chain is gone
	})
	p.place(p.before.frontends, want.frontends)
	p.chains()
	p.affinity(have.holds.from == nil)
	p.addDevices = lacking(have.holds.devices, want.devices)
	return p
}

// lacking returns the wanted devices that are not among those of a flowtable, both sorted.
func lacking(have, want []cluster.Device) (lacks []cluster.Device) {
	for _, device := range want {
		at, has := slices.BinarySearchFunc(have, device, func(a, b cluster.Device) int { return strings.Compare(a.Name, b.Name) })
		if !has || have[at].Index != 0 && have[at].Index != device.Index {
			lacks = append(lacks, device)
		}
	}
	return lacks
}

// place assigns slots to the endpoints of all entries that differ.
func (p *patch) place(have, want cluster.Map[plan.Frontend, *entry]) {
	p.frontends = make([]frontendChange, 0, max(0, want.Len()-have.Len()))
	frontends := want.Edit()
	for frontend, change := range cluster.Changes(have, want) {
		c := frontendChange{frontend: frontend, before: change.Before, after: change.After}
		if change.Was && change.Is { // a new entry may have any slots
			var same bool
			if c.after, same = placeEntry(c.before, c.after); c.after != change.After {
				frontends.Set(frontend, c.after)
			}
			if same {
				continue
			}
		}
		p.frontends = append(p.frontends, c)
	}
	p.after.frontends = frontends.Map()
}

// changedKeys returns the keys that only the later map has, and those that only the earlier one has.
func changedKeys[K cluster.Key[K]](before, after cluster.Map[K, int]) (added, gone []K) {
	for key, change := range cluster.Changes(before, after) {
		switch {
		case !change.Is:
			gone = append(gone, key)
		case !change.Was:
			added = append(added, key)
		}
	}
	return added, gone
}

// chains determines which chains to add, rewrite and delete.
func (p *patch) chains() {
	p.addChains, p.delChains = changedKeys(p.before.targets, p.after.targets)
	slices.Reverse(p.delChains) // a chain is deleted before those that it leads to
	if p.skeleton == nil {
		return
	}
	for t := range p.after.targets.All() { // what the existing ones hold is not known
		if _, exists := p.before.targets.Get(t); exists {
			p.rewriteChains = append(p.rewriteChains, t)
		}
	}
}

// affinity determines which affinity maps to add, delete and search for endpoints that left. Maps read from the kernel
// are always searched, because endpoints may have left while no proxy was running.
func (p *patch) affinity(read bool) {
	p.addSticky, p.delSticky = changedKeys(p.before.sticky, p.after.sticky)
	if read {
		for port := range p.after.sticky.All() {
			pools := port.maps()
			maps, was := p.before.sticky.Get(port)
			if was {
				p.forget = append(p.forget, pools[:]...)
			}
			if was && maps < len(pools) { // another program deleted one
				p.addSticky = append(p.addSticky, port)
			}
		}
		return
	}
	for pool, change := range cluster.Changes(p.before.pools, p.after.pools) {
		left := func(endpoint netip.AddrPort) bool { return !change.After.has(endpoint) }
		if change.Is && slices.ContainsFunc(change.Before.list(), left) {
			p.forget = append(p.forget, pool)
		}
	}
}

// placeEntry assigns slots to the endpoints of want; those in have keep theirs. same reports that nothing differs. It returns
// want itself if its slots are right, so that a restarted process keeps nothing that was read from the kernel.
func placeEntry(have, want *entry) (placed *entry, same bool) {
	hasLocal, wantLocal := have.getRare().local, want.getRare().local
	slots, local := want.slots, wantLocal
	if !want.goes.by.Hashes() {
		slots, local = assign(have.slots, want.slots), assign(hasLocal, wantLocal)
	}
	same = want.sameTerms(have) && slices.Equal(slots, have.slots) && slices.Equal(local, hasLocal)
	if slices.Equal(slots, want.slots) && slices.Equal(local, wantLocal) {
		return want, same
	}
	entry := *want
	entry.slots = slots
	if want.rare != nil {
		rare := *want.rare
		rare.local, entry.rare = local, &rare
	}
	return &entry, same // not have, which may be what was read from the kernel: that does not know the pools of affinity
}

// assign orders a pool, which has an endpoint as often as its weight requires: endpoints keep their slots if these still exist, others fill the gaps.
func assign(have, pool []netip.AddrPort) []netip.AddrPort {
	if len(have) == 0 || slices.Equal(have, pool) {
		return pool
	}
	sorted := pool // in the plan's order, unless there are weights
	if !slices.IsSortedFunc(sorted, netip.AddrPort.Compare) {
		sorted = slices.SortedFunc(slices.Values(pool), netip.AddrPort.Compare)
	}
	slots := make([]netip.AddrPort, len(sorted))
	kept := make([]uint32, len(sorted)) // how many slots an endpoint keeps, where it first is
	for slot, endpoint := range have[:min(len(have), len(slots))] {
		first, found := slices.BinarySearchFunc(sorted, endpoint, netip.AddrPort.Compare)
		if !found {
			continue
		}
		if last := first + int(kept[first]); last < len(sorted) && sorted[last] == endpoint {
			slots[slot] = endpoint
			kept[first]++
		}
	}
	gap, first := 0, 0
	for i, endpoint := range sorted {
		if endpoint != sorted[first] {
			first = i
		}
		if i < first+int(kept[first]) {
			continue
		}
		for slots[gap].IsValid() {
			gap++
		}
		slots[gap] = endpoint
	}
	return slots
}

// empty reports whether there is nothing to write.
func (p *patch) empty() bool {
	if p.skeleton != nil || !p.leftovers.none() || len(p.frontends)+len(p.addChains)+len(p.rewriteChains)+len(p.delChains)+
		len(p.strays)+len(p.addSticky)+len(p.delSticky)+len(p.forget)+len(p.addDevices) > 0 {
		return false
	}
	for range p.ops() { // addresses and pools
		return false
	}
	return true
}

// ops yields the operations on elements in an order that is right at every step: it fills the sets phase by phase, and
// then clears them in the reverse order. An op is valid until the next.
func (p *patch) ops() iter.Seq[*op] { return p.walk(0, phases, true) }

// lookedUp yields those of the ops that fill the sets which sized chains look up; others yields all other ones.
func (p *patch) lookedUp() iter.Seq[*op] { return p.walk(0, phaseVerdicts, false) }

func (p *patch) others() iter.Seq[*op] { return p.walk(phaseVerdicts, phases, true) }

// walk yields the operations that fill the sets of the phases from first on, and then, if clearing is set, those that clear
// the sets of all phases.
func (p *patch) walk(first, end phase, clearing bool) iter.Seq[*op] {
	return func(yield func(*op) bool) {
		w := &walk{patch: p, yield: yield}
		w.member = func(e element) bool { w.now.element = e; return yield(&w.now) }
		for phase := first; phase < end; phase++ {
			if !w.phase(phase) {
				return
			}
		}
		w.clear = true
		for phase := phases - 1; clearing && phase >= 0; phase-- {
			if !w.phase(phase) {
				return
			}
		}
	}
}

// walk is one iteration over the operations of a patch.
type walk struct {
	*patch
	clear bool
	yield func(*op) bool
	// member yields the operation for an element of a set that is not keyed by frontends.
	member func(element) bool
	// now is the current operation, was the element that it replaces.
	now op
	was element
}

// phase fills or clears the sets of a phase.
func (w *walk) phase(phase phase) bool {
	sets := &w.result.holds.schema.phases[phase]
	from, to := w.before, w.after
	if w.now.verb = add; w.clear { // elements to remove are those only in the earlier content
		from, to, w.now.verb = w.after, w.before, remove
	}
	for _, w.now.set = range sets.members {
		if !w.now.set.members.added(from, to, w.member) {
			return false
		}
	}
	for i := range w.frontends {
		c, keyed := &w.frontends[i], sets.frontends
		if c.frontend.IsNodePort() {
			keyed = sets.nodePorts
		}
		from, to := c.before, c.after
		if w.clear {
			from, to = c.after, c.before
		}
		if to == nil {
			continue
		}
		w.now.element, w.was = element{frontend: c.frontend}, element{frontend: c.frontend}
		for _, w.now.set = range keyed {
			if !w.entry(from, to) {
				return false
			}
		}
	}
	return true
}

// entry yields the operations for one entry in a set.
func (w *walk) entry(from, to *entry) bool {
	cells, key, found := w.now.set.cells, w.now.frontend, false
	for i := range cells.count(to) {
		if !cells.get(to, i, &w.now.element) {
			continue
		}
		found = true
		was := from != nil && cells.get(from, i, &w.was)
		switch {
		case was && (w.clear || w.now.element == w.was):
			continue
		case was:
			w.now.verb = replace
		case !w.clear:
			w.now.verb = add
		}
		if !w.yield(&w.now) {
			return false
		}
	}
	if found { // the next set has other columns
		w.now.element, w.was = element{frontend: key}, element{frontend: key}
	}
	return true
}
