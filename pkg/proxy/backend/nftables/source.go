package nftables

import (
	"fmt"
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// maxSlots limits the slots of a frontend that are accepted from the kernel, where any program may have written them. usualSlots
// limits the memory for slots that a verdict announces.
const maxSlots, usualSlots = 1 << 20, 1 << 10

// cells defines the elements of an entry in a set that is keyed by frontends.
type cells struct {
	// count returns the maximum number of elements of an entry; get completes the i-th, and reports whether it exists.
	count func(*entry) int
	get   func(of *entry, i int, e *element) bool
	// put adds an element from the kernel to an entry.
	put func(to *entry, e *element) error
	// slots returns the number of slots that a verdict refers to; nil if verdicts of this set do not.
	slots func(target) uint32
}

// slotCells are the endpoints of a pool, each in its slot. read returns the pool, and edit where to add to it.
func slotCells(read func(*entry) []netip.AddrPort, edit func(*entry) *[]netip.AddrPort, slots func(target) uint32) *cells {
	return &cells{
		count: func(of *entry) int { return len(read(of)) },
		get: func(of *entry, i int, e *element) bool {
			pool := read(of)
			if i >= len(pool) || !pool[i].IsValid() {
				return false
			}
			e.slot, e.addr, e.port = uint32(i), pool[i].Addr(), pool[i].Port()
			return true
		},
		put: func(to *entry, e *element) error {
			if e.slot >= maxSlots {
				return fmt.Errorf("slot %d is out of range", e.slot)
			}
			pool := edit(to)
			if *pool == nil {
				*pool = make([]netip.AddrPort, 0, min(slots(to.goes), usualSlots)) // verdicts are read first
			}
			if n := int(e.slot) + 1 - len(*pool); n > 0 {
				*pool = append(*pool, make([]netip.AddrPort, n)...)
			}
			(*pool)[e.slot] = e.endpoint()
			return nil
		},
		slots: slots,
	}
}

func one(*entry) int { return 1 }

// verdictCells are verdicts. read returns the verdict, and edit where to put it.
func verdictCells(read func(*entry) target, edit func(*entry) *target) *cells {
	return &cells{
		count: one,
		get: func(of *entry, _ int, e *element) bool {
			t := read(of)
			if t.kind == none {
				return false
			}
			e.goes, e.comment = t, of.comment
			return true
		},
		put: func(to *entry, e *element) error { *edit(to), to.comment = e.goes, e.comment; return nil },
	}
}

// flagCells are the elements of a set without values, with or without the Service's name as their comment.
func flagCells(at func(*terms) *bool, comment bool) *cells {
	return &cells{
		count: one,
		get: func(of *entry, _ int, e *element) bool {
			if comment {
				e.comment = of.comment
			}
			return *at(&of.terms)
		},
		put: func(to *entry, e *element) error {
			if comment {
				to.comment = e.comment
			}
			*at(&to.terms) = true
			return nil
		},
	}
}

// memberList defines the elements of a content in a set that is not keyed by frontends.
type memberList interface {
	// added calls yield for each element that only the later content has, until it returns false, and returns the last
	// result.
	added(before, after *content, yield func(element) bool) bool
	// put adds an element from the kernel to what was read.
	put(to *collector, e *element)
}

// addrMembers are the addresses of one family in a set of addresses.
type addrMembers struct {
	family cluster.Family
	in     addrSet
}

func (m addrMembers) added(before, after *content, yield func(element) bool) bool {
	for addr, change := range cluster.Changes(before.addrs[m.in], after.addrs[m.in]) {
		if !change.Was && cluster.FamilyOf(addr) == m.family && !yield(element{frontend: plan.Frontend{Addr: addr}}) {
			return false
		}
	}
	return true
}

func (m addrMembers) put(to *collector, e *element) { to.addrs[m.in][e.frontend.Addr] = 1 }

// poolMembers are the endpoints of the pools with affinity.
type poolMembers struct{}

func (poolMembers) added(before, after *content, yield func(element) bool) bool {
	for pool, change := range cluster.Changes(before.pools, after.pools) {
		for _, endpoint := range change.After.list() {
			if !change.Before.has(endpoint) && !yield(member(pool, endpoint)) {
				return false
			}
		}
	}
	return true
}

func (poolMembers) put(to *collector, e *element) {
	m, ok := to.pools.Get(e.pool())
	if !ok {
		m = &members{users: 1}
		to.pools.Set(e.pool(), m)
	}
	m.endpoints = append(m.endpoints, e.endpoint()) // sorted when all are read
}
