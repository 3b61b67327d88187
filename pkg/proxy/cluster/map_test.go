package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// number is the key of the maps in these tests.
type number int

func (n number) Compare(o number) int { return cmp.Compare(n, o) }

type numbers = Map[number, int]

// mapVersion is a Map and its expected content.
type mapVersion struct {
	m    numbers
	want map[number]int
}

// TestMapLaws applies random operations to a Map and to a Go map, and compares all versions with each other.
func TestMapLaws(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 0))
		keys := 1 + r.IntN(60)
		var m numbers
		if seed%2 == 1 { // the last generations
			m.generation = shared - generation(r.IntN(20))
		}
		want := map[number]int{}
		versions := []mapVersion{{m, maps.Clone(want)}}
		for range 40 {
			m = edit(r, m, want, keys)
			versions = append(versions, mapVersion{m, maps.Clone(want)})
		}
		for i, v := range versions {
			if err := v.check(); err != nil {
				t.Fatalf("seed %d, version %d: %v", seed, i, err)
			}
			for j := range versions {
				if err := checkChanges(v, versions[j]); err != nil {
					t.Fatalf("seed %d, changes from version %d to %d: %v", seed, i, j, err)
				}
			}
		}
	}
}

// edit applies a few operations to both maps, one by one or in an Editor that is frozen in between.
func edit(r *rand.Rand, m numbers, want map[number]int, keys int) numbers {
	e := m.Edit()
	for range r.IntN(10) {
		key, value := number(r.IntN(keys)), r.IntN(3)
		switch r.IntN(6) {
		case 0, 1:
			e.Set(key, value)
			want[key] = value
		case 2, 3:
			e.Delete(key)
			delete(want, key)
		case 4:
			e = e.Map().Set(key, value).Edit()
			want[key] = value
		case 5:
			e.Map() // freezes; the editor goes on
			e = e.Map().Delete(key).Edit()
			delete(want, key)
		}
		if got, ok := e.Get(key); ok != has(want, key) || got != want[key] {
			panic(fmt.Sprintf("Editor.Get(%d) gave %d, %v", key, got, ok))
		}
	}
	return e.Map()
}

// TestMapSiblings edits one map with several editors by turns: none changes what another one, or a map that was returned, has.
func TestMapSiblings(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		start := map[number]int{}
		for range 20 {
			start[number(r.IntN(40))] = r.IntN(3)
		}
		m := build(start)
		if seed%2 == 1 {
			m.generation = shared - generation(r.IntN(10))
		}
		versions := []mapVersion{{m, start}}
		var editors []*Editor[number, int]
		var wants []map[number]int
		for range 4 {
			editors, wants = append(editors, m.Edit()), append(wants, maps.Clone(start))
		}
		for range 200 {
			i, key := r.IntN(len(editors)), number(r.IntN(40))
			switch r.IntN(5) {
			case 0:
				versions = append(versions, mapVersion{editors[i].Map(), maps.Clone(wants[i])})
			case 1:
				editors[i].Delete(key)
				delete(wants[i], key)
			default:
				wants[i][key] = r.IntN(3)
				editors[i].Set(key, wants[i][key])
			}
		}
		for i, v := range versions {
			if err := v.check(); err != nil {
				t.Fatalf("seed %d, version %d: %v", seed, i, err)
			}
		}
	}
}

func has(m map[number]int, key number) bool {
	_, ok := m[key]
	return ok
}

// check compares all read methods of a Map with a Go map, and its shape with that of a new Map.
func (v mapVersion) check() error {
	if v.m.Len() != len(v.want) {
		return fmt.Errorf("Len %d, want %d", v.m.Len(), len(v.want))
	}
	var keys []number
	for key, value := range v.m.All() {
		keys = append(keys, key)
		if got, ok := v.m.Get(key); !ok || got != value || !has(v.want, key) || v.want[key] != value {
			return fmt.Errorf("key %d: All gave %d, Get %d, %v, want %d", key, value, got, ok, v.want[key])
		}
	}
	if len(keys) != len(v.want) || !slices.IsSorted(keys) {
		return fmt.Errorf("All gave the keys %v, want those of %v in order", keys, v.want)
	}
	if _, ok := v.m.Get(-1); ok {
		return fmt.Errorf("Get found a key that was never set")
	}
	values := slices.Collect(v.m.Values())
	for i, key := range keys {
		if values[i] != v.want[key] {
			return fmt.Errorf("Values gave %v for the keys %v", values, keys)
		}
	}
	return sameShape(v.m.root, build(v.want).root)
}

// build makes a Map in an order that is Go's to choose.
func build(want map[number]int) numbers {
	e := numbers{}.Edit()
	for key, value := range want {
		e.Set(key, value)
	}
	return e.Map()
}

// sameShape returns an error unless two trees are equal in every node: their shape depends on the keys, not on the
// history.
func sameShape(a, b *node[number, int]) error {
	if a == nil || b == nil {
		if a != b {
			return fmt.Errorf("a subtree is missing")
		}
		return nil
	}
	if a.key != b.key || a.value != b.value {
		return fmt.Errorf("the node %d=%d is %d=%d in a new map", a.key, a.value, b.key, b.value)
	}
	if err := sameShape(a.left, b.left); err != nil {
		return err
	}
	return sameShape(a.right, b.right)
}

// checkChanges compares Changes with the differences of two Go maps.
func checkChanges(before, after mapVersion) error {
	want := map[number]Change[int]{}
	for key := range before.want {
		want[key] = Change[int]{Before: before.want[key], Was: true}
	}
	for key, value := range after.want {
		c := want[key]
		c.After, c.Is = value, true
		want[key] = c
	}
	maps.DeleteFunc(want, func(_ number, c Change[int]) bool { return c.Was && c.Is && c.Before == c.After })
	var keys []number
	for key, change := range Changes(before.m, after.m) {
		keys = append(keys, key)
		if change != want[key] {
			return fmt.Errorf("key %d: %+v, want %+v", key, change, want[key])
		}
	}
	if len(keys) != len(want) || !slices.IsSorted(keys) {
		return fmt.Errorf("the keys %v, want those of %v in order", keys, want)
	}
	return nil
}

// TestMapStops checks that an iteration ends when the loop does.
func TestMapStops(t *testing.T) {
	m := build(map[number]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
	for stop := range number(6) {
		seen := number(0)
		for key := range m.All() {
			if seen = key; key == stop {
				break
			}
		}
		changed := number(0)
		for key := range Changes(numbers{}, m) {
			if changed = key; key == stop {
				break
			}
		}
		if want := cmp.Or(stop, 5); seen != want || changed != want {
			t.Errorf("stopped at %d and %d, want %d", seen, changed, want)
		}
	}
}

// TestMapSharing checks that a change copies only one path, and that an edit without effect copies nothing: Changes
// skips what two versions share.
func TestMapSharing(t *testing.T) {
	const entries = 10000
	want := map[number]int{}
	for i := range entries {
		want[number(2*i)] = i
	}
	before := build(want)
	old := map[*node[number, int]]bool{}
	each(before.root, func(n *node[number, int]) { old[n] = true })
	// A treap of n nodes is about 2 ln n deep on average, and hardly ever twice that.
	const path = 80
	changes := map[string]numbers{
		"a value": before.Set(5000, -1),
		"a key":   before.Set(5001, -1),
		"no key":  before.Delete(5000),
	}
	for name, after := range changes {
		fresh := 0
		each(after.root, func(n *node[number, int]) {
			if !old[n] {
				fresh++
			}
		})
		if fresh > path {
			t.Errorf("changing %s of %d copied %d nodes, want at most %d", name, entries, fresh, path)
		}
		allocs := testing.AllocsPerRun(10, func() {
			for range Changes(before, after) {
				continue
			}
		})
		if allocs > 2*path {
			t.Errorf("finding the change of %s among %d allocates %v times", name, entries, allocs)
		}
	}
	if same := before.Set(5000, 2500); same != before {
		t.Error("setting the present value made a new version")
	}
	if same := before.Delete(5001); same != before {
		t.Error("deleting a missing key made a new version")
	}
}

func each(n *node[number, int], visit func(*node[number, int])) {
	if n != nil {
		visit(n)
		each(n.left, visit)
		each(n.right, visit)
	}
}
