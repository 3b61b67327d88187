package nftables

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// largeSet is the number of elements above which a set is read by the keys that it should have, if these are known: the
// kernel's time for reading a whole set grows with the square of its size, and exceeds the time to find as many keys at
// about this size.
const largeSet = 50_000

// state completes a reading. The result shares what is equal with want: diff passes over that, and the copy can be freed.
func (r *reading) state(want *content) *state {
	content := &r.out.holds.content
	*content = r.content()
	for pool := range content.pools.Values() {
		slices.SortFunc(pool.endpoints, netip.AddrPort.Compare)
	}
	content.frontends = shared(r.entries, want.frontends, func(_ plan.Frontend, have, wanted *entry) bool {
		return have != nil && have.same(wanted)
	})
	for in := range r.addrs {
		content.addrs[in] = shared(r.addrs[in], want.addrs[in], func(addr netip.Addr, have, _ int) bool {
			return have > 0 || cluster.FamilyOf(addr) != r.out.holds.schema.family
		})
	}
	return r.out
}

// shared returns have as a map that shares with want the entries for which equal returns true. What have lacks is the zero value.
func shared[K cluster.Key[K], V comparable](have map[K]V, want cluster.Map[K, V], equal func(key K, have, wanted V) bool) cluster.Map[K, V] {
	if len(have) < want.Len()/2 {
		want = cluster.Map[K, V]{} // deleting would take longer
	}
	edit, common := want.Edit(), 0
	for key, wanted := range want.All() {
		value, ok := have[key]
		if ok {
			common++
		}
		switch {
		case equal(key, value, wanted):
		case ok:
			edit.Set(key, value)
		default:
			edit.Delete(key)
		}
	}
	if common == len(have) {
		return edit.Map()
	}
	for key, value := range have {
		if _, ok := want.Get(key); !ok {
			edit.Set(key, value)
		}
	}
	return edit.Map()
}

// read reads the kernel's table.
func read(ctx context.Context, table nft.Table, s *schema) (*reading, error) {
	return readBy(ctx, table, s, largeSet)
}

// readBy reads with another value of largeSet, which affects only the time.
func readBy(ctx context.Context, table nft.Table, s *schema, large int) (*reading, error) {
	r := newReader(ctx, table, s, large)
	objects, err := table.Objects(ctx)
	if err != nil || !objects.Exists {
		return r.reading, err
	}
	if err := r.chains(objects.Chains); err != nil {
		return nil, err
	}
	r.flowtables(objects.Flowtables)
	return r.reading, r.sets(objects.Sets)
}

// reader reads one table.
type reader struct {
	ctx   context.Context
	table nft.Table
	large int
	*reading
}

func newReader(ctx context.Context, table nft.Table, s *schema, large int) *reader {
	return &reader{ctx: ctx, table: table, large: large, reading: &reading{collector: newCollector(), out: &state{holds: nothing(s)}}}
}

// chains determines whether the skeleton is known, and which sized chains exist.
func (r *reader) chains(chains []nf.Chain) error {
	fixed := map[string]bool{}
	for _, c := range newWriter(r.out.holds.schema, &plan.Node{}, Options{}).fixed() {
		fixed[c.name] = true
	}
	fingerprint, objects, err := r.table.Fingerprint(r.ctx, chainLayout)
	if err != nil {
		return err
	}
	for _, c := range chains {
		t, err := parseTarget(c.Name)
		switch {
		case c.Name == chainLayout:
			if digest, recorded, _ := strings.Cut(c.Comment, " "); recorded == fingerprint {
				r.out.holds.skeleton, r.out.fingerprint, r.out.objects = &skeleton{digest: digest}, fingerprint, objects
			}
		case fixed[c.Name], c.Bound: // the latter is deleted with its rule
		case err == nil && c.Type != "": // only another program hooks it; applier.declareSets deletes it
		case err == nil:
			r.targets.Set(t, 1)
		default:
			r.out.leftovers.chains = append(r.out.leftovers.chains, c.Name)
		}
	}
	return nil
}

// flowtables records the devices of the flowtable, and which other ones there are.
func (r *reader) flowtables(flowtables []nf.Flowtable) {
	for _, f := range flowtables {
		if !r.out.holds.schema.fast || f.Name != flowtable {
			r.out.leftovers.flowtables = append(r.out.leftovers.flowtables, f.Name)
			continue
		}
		for _, name := range slices.Sorted(slices.Values(f.Devices)) {
			r.out.holds.devices = append(r.out.holds.devices, cluster.Device{Name: name})
		}
	}
}

// sets reads the sets of the schema.
func (r *reader) sets(sets []nf.Set) error {
	for _, found := range r.known(sets) {
		if err := r.elements(found); err != nil {
			return fmt.Errorf("read %s: %w", found.Name, err)
		}
	}
	return nil
}

// knownSet is a set of the schema in the kernel.
type knownSet struct {
	nf.Set
	row *set
}

// known returns the sets of the schema, in the order in which to read them, and records the others.
func (r *reader) known(sets []nf.Set) (known []knownSet) {
	for _, found := range sets {
		pool, clients := parseClients(found.Name)
		chain, meter := parseMeter(found.Name)
		if meter {
			_, meter = r.targets.Get(chain)
		}
		row := r.out.holds.schema.named(found.Name)
		switch {
		case clients && found.Map:
			count(r.sticky, pool&^localBit, 1) // packets write its elements
		case meter && !found.Map: // and these
		case row != nil:
			known = append(known, knownSet{found, row})
		case found.Map:
			r.out.leftovers.maps = append(r.out.leftovers.maps, found.Name)
		default:
			r.out.leftovers.sets = append(r.out.leftovers.sets, found.Name)
		}
	}
	slices.SortStableFunc(known, func(a, b knownSet) int { return cmp.Compare(b.row.phase, a.row.phase) })
	return known
}

// elements reads a set.
func (r *reader) elements(s knownSet) error {
	if s.row.cells != nil && s.row.cells.slots != nil && s.Count >= r.large {
		strays := len(r.out.strays)
		found, err := r.take(s.row, r.table.Find(r.ctx, s.Name, r.slotKeys(s.row)))
		if err != nil || found == s.Count {
			return err // found all of them
		}
		r.out.strays = r.out.strays[:strays] // an element that is taken twice does not matter
	}
	_, err := r.take(s.row, r.table.Elements(r.ctx, s.Name))
	return err
}

// slotKeys yields the keys of the slots that the verdicts refer to. Each is valid until the next.
func (r *reader) slotKeys(s *set) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		in := newBuffer()
		var at element
		for frontend, e := range r.entries {
			if frontend.IsNodePort() != s.nodePort {
				continue
			}
			for slot := range min(s.cells.slots(e.goes), maxSlots) {
				at.frontend, at.slot = frontend, slot
				if !yield(s.encode(&at, in).Key) {
					return
				}
			}
		}
	}
}

// take adds the elements of a set to the content, and returns their number. Elements that cannot be decoded are strays.
func (r *reader) take(s *set, elements iter.Seq2[nf.Element, error]) (count int, _ error) {
	in := newBuffer()
	for raw, err := range elements {
		if err != nil {
			return count, err
		}
		count++
		e, err := s.decode(&raw, in)
		if err == nil && s.members != nil {
			s.members.put(&r.collector, e)
		} else if err == nil {
			err = s.cells.put(r.entry(e.frontend), e)
		}
		if err != nil {
			r.out.strays = append(r.out.strays, stray{set: s.name, key: string(raw.Key)})
		}
	}
	return count, nil
}
