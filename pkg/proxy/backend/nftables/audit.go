package nftables

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// audit compares the elements that a table should hold with those that it does, a part at a time. It looks up what should
// be there, whose cost follows how much that is; that nothing else is there is for the sets' sizes to tell.
type audit struct {
	// of is the table as it was to be when the audit began. Whatever was written since is right as it is.
	of *ruleset
	// begun tells that the sizes have been compared, next gives the elements that have not.
	begun bool
	next  func() (op, bool)
	stop  func()
}

// beginAudit audits what is held to be in the table, if that is known.
func (f *family) beginAudit() {
	f.endAudit()
	if f.have != nil {
		f.audit = &audit{of: f.have}
		f.audit.next, f.audit.stop = iter.Pull(f.have.elements())
	}
}

func (f *family) endAudit() {
	if f.audit != nil {
		f.audit.stop()
	}
	f.audit = nil
}

// take gives the elements that are next, by their sets, and tells whether they are the last.
func (a *audit) take(most int) (parts map[string][]op, last bool) {
	parts = map[string][]op{}
	for range most {
		o, more := a.next()
		if !more {
			return parts, true
		}
		parts[o.set] = append(parts[o.set], o)
	}
	return parts, false
}

// auditPart goes on with the audit by so many elements, and tells whether they are as they should be. With the last it ends.
func (f *family) auditPart(ctx context.Context, most int) (right bool, _ error) {
	if !f.audit.begun {
		if right, err := f.sized(ctx, true); err != nil || !right {
			return false, err
		}
		f.audit.begun = true
	}
	parts, last := f.audit.take(most)
	if last {
		defer f.endAudit()
	}
	for set, part := range parts {
		amiss, err := f.amiss(ctx, set, part)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(amiss, func(o op) bool { return f.audit.of.agrees(f.have, &o) }) {
			return false, nil
		}
	}
	return true, nil
}

// amiss finds out which elements of a set are missing, or say something else. A comment is nothing that packets meet.
func (f *family) amiss(ctx context.Context, set string, part []op) (amiss []op, _ error) {
	wants := make([]nft.Element, len(part))
	for i := range part {
		wants[i] = part[i].element(nil, nil)
	}
	keys := func(yield func([]byte) bool) {
		for i := range wants {
			if !yield(wants[i].Key) {
				return
			}
		}
	}
	at := 0
	for found, err := range f.table.Find(ctx, set, keys) {
		if err != nil {
			return nil, err
		}
		for ; at < len(part) && !bytes.Equal(wants[at].Key, found.Key); at++ {
			amiss = append(amiss, part[at])
		}
		if at == len(part) {
			return nil, fmt.Errorf("element %x was not asked for", found.Key)
		}
		if !bytes.Equal(wants[at].Value, found.Value) || wants[at].Chain != found.Chain {
			amiss = append(amiss, part[at])
		}
		at++
	}
	return append(amiss, part[at:]...), nil
}

// agrees tells whether a later ruleset, too, has an element as it is to be in this one.
func (r *ruleset) agrees(later *ruleset, o *op) bool {
	switch o.set {
	case setClusterIPs:
		_, holds := later.clusterIPs.Get(o.addr)
		return holds
	case setHairpins:
		_, holds := later.hairpins.Get(o.addr)
		return holds
	case setNodeAddrs:
		return slices.Contains(later.nodeAddrs, o.addr)
	case setSticky:
		m, holds := later.pools.Get(o.pool)
		return holds && slices.Contains(m.endpoints, o.to)
	}
	before, _ := r.frontends.Get(o.frontend)
	after, _ := later.frontends.Get(o.frontend)
	return before == after
}

// elements are all that the table should hold, as operations that add them: first those that lead packets.
func (r *ruleset) elements() iter.Seq[op] {
	return func(yield func(op) bool) {
		nothing := &entry{}
		for frontend, e := range r.frontends.All() {
			c := frontendChange{frontend: frontend, before: nothing, after: e}
			if !fillSlots(&c, yield) || !setGuards(&c, yield) || !setVerdicts(&c, yield) || !setLocalhost(&c, yield) {
				return
			}
		}
		for pool, m := range r.pools.All() {
			for _, endpoint := range m.endpoints {
				if !yield(op{set: setSticky, pool: pool, to: endpoint}) {
					return
				}
			}
		}
		for _, addr := range r.nodeAddrs {
			if !yield(op{set: setNodeAddrs, addr: addr}) {
				return
			}
		}
		for set, addrs := range map[string]cluster.Map[netip.Addr, int]{setClusterIPs: r.clusterIPs, setHairpins: r.hairpins} {
			for addr := range addrs.All() {
				if r.holds(addr) && !yield(op{set: set, addr: addr}) {
					return
				}
			}
		}
	}
}

// maxDumped is the size up to which a set is read as a whole to learn its size, where the kernel does not tell: some 20 ms.
const maxDumped = 10_000

// sized tells whether sets have as many elements as they should. Where the kernel does not tell (before 6.18 or so), small ones
// are read for it if that is asked for, and large ones not.
func (f *family) sized(ctx context.Context, read bool) (bool, error) {
	objects, err := f.table.Objects(ctx)
	if err != nil {
		return false, err
	}
	want := f.census.take(f.have)
	for _, set := range objects.Sets {
		if _, clients := parseTimeout(set.Name); clients {
			continue // whom it remembers is the packets' business
		}
		size := set.Count
		if size < 0 {
			if !read || want[set.Name] > maxDumped {
				continue
			}
			size = 0
			for _, err := range f.table.Elements(ctx, set.Name) {
				if err != nil {
					return false, err
				}
				size++
			}
		}
		if size != want[set.Name] {
			return false, nil
		}
	}
	return true, nil
}

// census tells how many elements each set of a ruleset has.
type census struct {
	of   *ruleset
	size map[string]int
}

// take counts the elements of a ruleset, where that is not done already: it takes milliseconds for 250,000 endpoints.
func (c *census) take(r *ruleset) map[string]int {
	if c.of == r {
		return c.size
	}
	*c = census{r, map[string]int{}}
	set, n := "", 0
	for o := range r.elements() {
		if o.set != set {
			c.size[set] += n
			set, n = o.set, 0
		}
		n++
	}
	c.size[set] += n
	return c.size
}
