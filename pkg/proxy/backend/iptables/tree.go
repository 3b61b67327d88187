package iptables

import (
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// entry holds the rules of one frontend in one place.
type entry struct {
	frontend plan.Frontend
	body     body
}

// tree sorts frontends by digits of what they are matched by, so that a packet is compared with few rules, and a change
// of one frontend rewrites one leaf. It is immutable; two versions share what is equal. A nil tree is empty.
//
// Its shape depends only on its frontends: a node branches if there are too many for a leaf.
type tree struct {
	// entries are sorted, in a leaf only; any other node has a branch for each digit.
	entries  []*entry
	branches *[radix]*tree
	size     int
}

// radix is the number of branches of a node. With two bits in a digit a packet is compared with the fewest rules.
const digitBits, radix = 2, 1 << digitBits

// flat is the maximum number of frontends in a tree without branches, which keeps a small ruleset legible, and leaf that in the leaf of any
// other: at 10,000 frontends a packet is compared with about 18 rules.
const flat, leaf = 64, 16

// most returns the maximum number of frontends of a node without branches.
func most(level int) int {
	if level == 0 {
		return flat
	}
	return leaf
}

// shape defines how a tree branches.
type shape struct {
	levels int
	// digit returns one digit of a frontend, from level 0 to levels-1.
	digit func(f plan.Frontend, level int) int
	// match matches packets with the last digit of a path, if they match the digits before it.
	match func(w *writer, path []int) []ipt.Match
}

// edit returns another version of a tree. Edits set frontends' rules, or remove them (if there are none).
func (s *shape) edit(t *tree, edits []*entry) *tree {
	slices.SortStableFunc(edits, func(a, b *entry) int { return a.frontend.Compare(b.frontend) })
	return s.editNode(t, 0, edits)
}

func (s *shape) editNode(t *tree, level int, edits []*entry) *tree {
	if len(edits) == 0 {
		return t
	}
	if t == nil || t.branches == nil {
		return s.grow(merge(t.all(), edits), level)
	}
	var parts [radix][]*entry
	for _, e := range edits {
		digit := s.digit(e.frontend, level)
		parts[digit] = append(parts[digit], e)
	}
	branches, size, used := *t.branches, 0, 0
	var last *tree
	for digit := range branches {
		branches[digit] = s.editNode(branches[digit], level+1, parts[digit])
		if branches[digit] != nil {
			size, used, last = size+branches[digit].size, used+1, branches[digit]
		}
	}
	now := &tree{branches: &branches, size: size}
	switch {
	case size <= most(level):
		return s.grow(now.all(), level)
	case used == 1 && last.branches == nil && alike(last.entries):
		return last
	}
	return now
}

// grow returns a tree of sorted entries.
func (s *shape) grow(entries []*entry, level int) *tree {
	if len(entries) == 0 {
		return nil
	}
	if len(entries) <= most(level) || level == s.levels || alike(entries) {
		return &tree{entries: entries, size: len(entries)}
	}
	var parts [radix][]*entry
	for _, e := range entries {
		digit := s.digit(e.frontend, level)
		parts[digit] = append(parts[digit], e)
	}
	t := &tree{branches: new([radix]*tree), size: len(entries)}
	for digit, part := range parts {
		t.branches[digit] = s.grow(part, level+1)
	}
	return t
}

// alike reports whether all entries have the same digits. Node ports never do, because each has another port.
func alike(entries []*entry) bool {
	first, last := entries[0].frontend, entries[len(entries)-1].frontend
	return first.Addr == last.Addr && !first.IsNodePort()
}

// merge applies edits to entries; both are sorted.
func merge(entries, edits []*entry) []*entry {
	merged := make([]*entry, 0, len(entries)+len(edits))
	for _, e := range edits {
		for len(entries) > 0 && entries[0].frontend.Compare(e.frontend) < 0 {
			merged, entries = append(merged, entries[0]), entries[1:]
		}
		if len(entries) > 0 && entries[0].frontend == e.frontend {
			entries = entries[1:]
		}
		if e.body.count > 0 {
			merged = append(merged, e)
		}
	}
	return append(merged, entries...)
}

// all returns the entries, sorted.
func (t *tree) all() []*entry {
	if t == nil {
		return nil
	}
	if t.branches == nil {
		return t.entries
	}
	var all []*entry
	for _, branch := range t.branches {
		all = append(all, branch.all()...)
	}
	slices.SortFunc(all, func(a, b *entry) int { return a.frontend.Compare(b.frontend) })
	return all
}

// body returns the rules of a tree.
func (t *tree) body() (b body) {
	entries := t.all()
	for _, e := range entries {
		b.count += e.body.count
	}
	b.add = func(to []ipt.Rule) []ipt.Rule {
		for _, e := range entries {
			to = e.body.appendTo(to)
		}
		return to
	}
	return b
}

// walk visits the nodes that two versions of a tree do not share, the deepest first, each with its path: one digit
// after another from the root. Either may be nil.
func walk(before, after *tree, path []int, visit func(path []int, before, after *tree)) {
	if before == after {
		return
	}
	for digit := range radix {
		walk(before.branch(digit), after.branch(digit), append(slices.Clip(path), digit), visit)
	}
	visit(path, before, after)
}

func (t *tree) branch(digit int) *tree {
	if t == nil || t.branches == nil {
		return nil
	}
	return t.branches[digit]
}
