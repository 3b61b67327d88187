package cluster

import (
	"hash/maphash"
	"iter"
)

// Key is what a Map can be sorted by: a comparable value that knows its order.
type Key[K any] interface {
	comparable
	// Compare returns -1, 0 or +1 as the receiver sorts before, equal to or after other.
	Compare(other K) int
}

// Map is an immutable map sorted by key. The zero value is empty and ready to use.
//
// It is a treap whose priorities are a hash of the key, so the tree's shape depends on its keys alone and
// not on how they came. Two versions of a map therefore share every subtree that is equal, and Changes
// finds what differs between them in O(changes · log n) by comparing pointers.
//
// Values are compared with ==: use pointers to immutable values.
type Map[K Key[K], V comparable] struct {
	root *node[K, V]
}

// node is one entry. A node is frozen as soon as a Map that holds it leaves an Editor.
type node[K Key[K], V comparable] struct {
	key         K
	value       V
	priority    uint64
	size        int
	left, right *node[K, V]
	owner       *token // of the editor that may still change this node
}

// seed makes priorities unpredictable to whoever chooses the keys. It differs between processes, which
// changes the shape of trees and nothing that can be seen from outside.
var seed = maphash.MakeSeed()

// Len is the number of entries.
func (m Map[K, V]) Len() int { return size(m.root) }

// Get finds the value of a key.
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

// All visits the entries in the order of their keys.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { m.root.each(yield) }
}

// Values visits the values in the order of their keys.
func (m Map[K, V]) Values() iter.Seq[V] {
	return func(yield func(V) bool) {
		m.root.each(func(_ K, value V) bool { return yield(value) })
	}
}

// Set returns a map that has value at key as well.
func (m Map[K, V]) Set(key K, value V) Map[K, V] {
	e := m.Edit()
	e.Set(key, value)
	return e.Map()
}

// Delete returns a map without key.
func (m Map[K, V]) Delete(key K) Map[K, V] {
	e := m.Edit()
	e.Delete(key)
	return e.Map()
}

// Edit starts a series of changes that ends with Editor.Map. The map itself stays as it is.
func (m Map[K, V]) Edit() *Editor[K, V] { return &Editor[K, V]{root: m.root} }

// Editor applies many changes to a map without copying a node twice.
type Editor[K Key[K], V comparable] struct {
	root *node[K, V]
	self *token // what this editor signs its nodes with, until Map freezes them
}

// token is an identity: two are equal only when they are the same.
type token struct{ _ byte }

// Map freezes what was edited so far. The editor may be used further and will copy what it changes.
func (e *Editor[K, V]) Map() Map[K, V] {
	e.self = nil
	return Map[K, V]{root: e.root}
}

// Get finds the value of a key, edits included.
func (e *Editor[K, V]) Get(key K) (V, bool) { return Map[K, V]{root: e.root}.Get(key) }

// Set puts value at key. Setting the value that is there changes nothing and keeps all sharing.
func (e *Editor[K, V]) Set(key K, value V) {
	e.sign()
	e.root = e.set(e.root, key, value)
}

// Delete removes key if it is there.
func (e *Editor[K, V]) Delete(key K) {
	if _, ok := e.Get(key); ok {
		e.root = e.remove(e.root, key)
	}
}

// own returns n itself when this editor made it, or else a copy that it may change.
func (e *Editor[K, V]) own(n *node[K, V]) *node[K, V] {
	if n.owner == e.sign() {
		return n
	}
	c := *n
	c.owner = e.self
	return &c
}

// sign is what this editor's own nodes bear.
func (e *Editor[K, V]) sign() *token {
	if e.self == nil {
		e.self = new(token)
	}
	return e.self
}

func (e *Editor[K, V]) set(n *node[K, V], key K, value V) *node[K, V] {
	if n == nil {
		return &node[K, V]{key: key, value: value, priority: maphash.Comparable(seed, key), size: 1, owner: e.self}
	}
	switch order := key.Compare(n.key); {
	case order < 0:
		before := size(n.left)
		left := e.set(n.left, key, value)
		if left.owner != e.self { // the value was there
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
		if right.owner != e.self {
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

// join makes one tree of two, where every key of left sorts before every key of right.
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

// above tells whether n belongs nearer to the root than o: by priority, and by key where priorities collide.
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

// Change is what happened to one key between two maps.
type Change[V any] struct {
	Before, After V
	// Was and Is tell whether the key existed before and exists after; at least one of them is true.
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

// split parts a tree that does not hold key into what sorts before and after it, copying only the path.
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
