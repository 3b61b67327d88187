package cluster

import (
	"hash/maphash"
	"iter"
)

// Key is the constraint for the keys of a Map: comparable values with an order.
type Key[K any] interface {
	comparable
	// Compare returns -1, 0 or +1 as the receiver sorts before, equal to or after other.
	Compare(other K) int
}

// Map is an immutable map sorted by key. The zero value is empty and ready to use.
//
// It is a treap whose priorities are a hash of the key, so the tree's shape depends only on its keys and not on the
// order of insertion. Two versions of a map therefore share every subtree that is equal, and Changes finds their
// differences in O(changes · log n) by comparing pointers.
//
// Values are compared with ==: use pointers to immutable values.
type Map[K Key[K], V comparable] struct {
	root *node[K, V]
}

// node is one entry. It is immutable once a Map that contains it has been returned by an Editor.
type node[K Key[K], V comparable] struct {
	key         K
	value       V
	priority    uint64
	size        int
	left, right *node[K, V]
	owner       *token // identifies the editor that may still change this node
}

// seed makes priorities unpredictable to users who choose the keys. It differs between processes, which changes the
// shape of the trees and nothing else.
var seed = maphash.MakeSeed()

// Len returns the number of entries.
func (m Map[K, V]) Len() int { return size(m.root) }

// Get returns the value of a key.
func (m Map[K, V]) Get(key K) (value V, ok bool) {
	for n := m.root; n != nil; {
		switch order := key.Compare(n.key); {
		case order < 0:
			n = n.left
		case order > 0:
			n = n.right
		default:
			return n.value, true
		}
	}
	return value, false
}

// All returns the entries in the order of their keys.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { m.root.each(yield) }
}

// Values returns the values in the order of their keys.
func (m Map[K, V]) Values() iter.Seq[V] {
	return func(yield func(V) bool) {
		m.root.each(func(_ K, value V) bool { return yield(value) })
	}
}

// Set returns a copy of the map with value at key.
func (m Map[K, V]) Set(key K, value V) Map[K, V] {
	e := m.Edit()
	e.Set(key, value)
	return e.Map()
}

// Delete returns a copy of the map without key.
func (m Map[K, V]) Delete(key K) Map[K, V] {
	e := m.Edit()
	e.Delete(key)
	return e.Map()
}

// Edit returns an Editor that starts with the entries of m. The map itself does not change.
func (m Map[K, V]) Edit() *Editor[K, V] { return &Editor[K, V]{root: m.root} }

// Editor applies many changes to a map without copying a node twice.
type Editor[K Key[K], V comparable] struct {
	root  *node[K, V]
	owner *token // the owner of this editor's nodes; nil after Map
}

// token is an identity: only pointers to the same token are equal.
type token struct{ _ byte }

// Map returns the edited map. The editor may be used further; it then copies the nodes that it changes.
func (e *Editor[K, V]) Map() Map[K, V] {
	e.owner = nil
	return Map[K, V]{root: e.root}
}

// Get returns the value of a key, including edits.
func (e *Editor[K, V]) Get(key K) (V, bool) { return Map[K, V]{root: e.root}.Get(key) }

// Set puts value at key. Setting the present value changes nothing and preserves sharing.
func (e *Editor[K, V]) Set(key K, value V) {
	e.token()
	e.root = e.set(e.root, key, value)
}

// Delete removes key if it is present.
func (e *Editor[K, V]) Delete(key K) {
	if _, ok := e.Get(key); ok {
		e.root = e.remove(e.root, key)
	}
}

// own returns n if this editor may change it, or else a copy that it may change.
func (e *Editor[K, V]) own(n *node[K, V]) *node[K, V] {
	if n.owner == e.token() {
		return n
	}
	c := *n
	c.owner = e.owner
	return &c
}

// token returns the owner of the nodes that this editor creates.
func (e *Editor[K, V]) token() *token {
	if e.owner == nil {
		e.owner = new(token)
	}
	return e.owner
}

func (e *Editor[K, V]) set(n *node[K, V], key K, value V) *node[K, V] {
	if n == nil {
		return &node[K, V]{key: key, value: value, priority: maphash.Comparable(seed, key), size: 1, owner: e.owner}
	}
	switch order := key.Compare(n.key); {
	case order < 0:
		before := size(n.left)
		left := e.set(n.left, key, value)
		if left.owner != e.owner { // the value is unchanged
			return n
		}
		n = e.own(n)
		n.left, n.size = left, n.size+left.size-before
		if left.above(n) {
			return n.rotateRight()
		}
	case order > 0:
		before := size(n.right)
		right := e.set(n.right, key, value)
		if right.owner != e.owner {
			return n
		}
		n = e.own(n)
		n.right, n.size = right, n.size+right.size-before
		if right.above(n) {
			return n.rotateLeft()
		}
	case n.value != value:
		n = e.own(n)
		n.value = value
	}
	return n
}

func (e *Editor[K, V]) remove(n *node[K, V], key K) *node[K, V] {
	order := key.Compare(n.key)
	if order == 0 {
		return e.join(n.left, n.right)
	}
	n = e.own(n)
	if order < 0 {
		n.left = e.remove(n.left, key)
	} else {
		n.right = e.remove(n.right, key)
	}
	n.resize()
	return n
}

// join merges two trees, where every key of left sorts before every key of right.
func (e *Editor[K, V]) join(left, right *node[K, V]) *node[K, V] {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.above(right):
		left = e.own(left)
		left.right = e.join(left.right, right)
		left.resize()
		return left
	default:
		right = e.own(right)
		right.left = e.join(left, right.left)
		right.resize()
		return right
	}
}

// above reports whether n belongs nearer to the root than o: by priority, or by key if priorities collide.
func (n *node[K, V]) above(o *node[K, V]) bool {
	if n.priority != o.priority {
		return n.priority > o.priority
	}
	return n.key.Compare(o.key) < 0
}

func (n *node[K, V]) rotateRight() *node[K, V] {
	top := n.left
	n.left, top.right = top.right, n
	n.resize()
	top.resize()
	return top
}

func (n *node[K, V]) rotateLeft() *node[K, V] {
	top := n.right
	n.right, top.left = top.left, n
	n.resize()
	top.resize()
	return top
}

func (n *node[K, V]) resize() { n.size = 1 + size(n.left) + size(n.right) }

func size[K Key[K], V comparable](n *node[K, V]) int {
	if n == nil {
		return 0
	}
	return n.size
}

func (n *node[K, V]) each(yield func(K, V) bool) bool {
	return n == nil || n.left.each(yield) && yield(n.key, n.value) && n.right.each(yield)
}

// Change is the difference of one key between two maps.
type Change[V any] struct {
	Before, After V
	// Was and Is report whether the key existed before and exists after; at least one of them is true.
	Was, Is bool
}

// Changes visits, in the order of keys, every key whose value differs between two versions of a map.
// Subtrees that both versions share are passed over, so the cost follows what changed.
func Changes[K Key[K], V comparable](before, after Map[K, V]) iter.Seq2[K, Change[V]] {
	return func(yield func(K, Change[V]) bool) { changes(before.root, after.root, yield) }
}

func changes[K Key[K], V comparable](a, b *node[K, V], yield func(K, Change[V]) bool) bool {
	switch {
	case a == b:
		return true
	case a == nil:
		return b.each(func(k K, v V) bool { return yield(k, Change[V]{After: v, Is: true}) })
	case b == nil:
		return a.each(func(k K, v V) bool { return yield(k, Change[V]{Before: v, Was: true}) })
	case a.key == b.key:
		return changes(a.left, b.left, yield) &&
			(a.value == b.value || yield(a.key, Change[V]{Before: a.value, After: b.value, Was: true, Is: true})) &&
			changes(a.right, b.right, yield)
	case a.above(b): // b cannot hold a.key, or it would be b's root
		left, right := split(b, a.key)
		return changes(a.left, left, yield) &&
			yield(a.key, Change[V]{Before: a.value, Was: true}) &&
			changes(a.right, right, yield)
	default:
		left, right := split(a, b.key)
		return changes(left, b.left, yield) &&
			yield(b.key, Change[V]{After: b.value, Is: true}) &&
			changes(right, b.right, yield)
	}
}

// split divides a tree that does not contain key into the entries before and after it. It copies only the path.
func split[K Key[K], V comparable](n *node[K, V], key K) (before, after *node[K, V]) {
	if n == nil {
		return nil, nil
	}
	c := *n
	if key.Compare(n.key) < 0 {
		before, c.left = split(n.left, key)
		return before, &c
	}
	c.right, after = split(n.right, key)
	return &c, after
}
