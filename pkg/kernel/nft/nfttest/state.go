package nfttest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// fakeState is the content of a Fake. Each change records how to undo it.
type fakeState struct {
	family knftables.Family
	name   string
	table  *fakeTable
	world  *fakeWorld
	// writer is the program that is writing, write its transaction.
	writer string
	write  nf.Write

	undo []func()
	// declared are the sets that this transaction declares.
	declared map[string]bool
	// jumps means that a rule or element was added that goes to a chain: then the table is validated at the end.
	jumps bool

	// refuse and anonymous are those of Fake.Refuse.
	refuse    func(object string, key []byte) unix.Errno
	anonymous bool
}

type fakeTable struct {
	comment  string
	chains   map[string]*fakeChain
	sets     map[string]*fakeSet
	counters map[string]*fakeCounter
}

type fakeChain struct {
	comment string
	base    *fakeBase
	rules   []fakeRule
	// users counts the rules and elements that go here.
	users int
}

// fakeBase is the declaration of a base chain.
type fakeBase struct {
	typ      string
	hook     uint32
	priority int32
	// policy is "accept" or "drop". In a command, "" keeps it, and is "accept" for a new chain.
	policy string
}

type fakeRule struct {
	text, comment          string
	chains, sets, counters []string // that it refers to
}

type fakeSet struct {
	name        string
	declaration string
	isMap       bool
	key, value  []field
	verdicts    bool
	interval    bool
	dynamic     bool
	timeout     bool
	counter     bool
	// typedByPort means that values have a port and were declared with typeof.
	typedByPort bool
	size        int
	elements    map[string]fakeElement
	// texts are an interval set's elements.
	texts map[string]fakeElement
	// users counts the rules that look it up.
	users int
	// goes counts the elements that go to a chain.
	goes map[string]int
}

type fakeElement struct {
	value          []byte
	verdict        fakeVerdict
	comment        string
	packets, bytes uint64
}

// fakeVerdict is "goto" or "jump" and a chain, or "accept", "drop" or "return".
type fakeVerdict struct{ word, chain string }

func (s *fakeSet) len() int { return len(s.elements) + len(s.texts) }

// transact runs change, and undoes it if it fails.
func (s *fakeState) transact(change func() error) error {
	s.write = nf.Write{Program: s.writer}
	s.undo, s.jumps, s.declared = s.undo[:0], false, map[string]bool{}
	err := change()
	if err == nil && s.jumps {
		err = s.validate()
	}
	if err != nil {
		for _, f := range slices.Backward(s.undo) {
			f()
		}
		return err
	}
	if len(s.undo) > 0 {
		s.world.wrote(s.write)
	}
	return nil
}

func (s *fakeState) did(undo func()) { s.undo = append(s.undo, undo) }

// note notifies of what the transaction writes.
func (s *fakeState) note(kind nf.Kind, name, key string) {
	o := nf.Object{Table: nf.TableName{Family: nf.ParseFamily(string(s.family)), Name: s.name}, Kind: kind, Name: name, Key: key}
	if n := len(s.write.Objects); n == 0 || s.write.Objects[n-1] != o {
		s.write.Objects = append(s.write.Objects, o)
	}
}

// touched records an operation that changes nothing but increments the generation.
func (s *fakeState) touched(kind nf.Kind, name string) {
	s.did(func() {})
	s.note(kind, name, "")
}

func (s *fakeState) needTable() error {
	if s.table == nil {
		return refuse(unix.ENOENT, "no table %s %s", s.family, s.name)
	}
	return nil
}

func (s *fakeState) chain(name string) (*fakeChain, error) {
	if err := s.needTable(); err != nil {
		return nil, err
	}
	if c := s.table.chains[name]; c != nil {
		return c, nil
	}
	return nil, refuse(unix.ENOENT, "no chain %s", name)
}

func (s *fakeState) set(name string) (*fakeSet, error) {
	if err := s.needTable(); err != nil {
		return nil, err
	}
	if set := s.table.sets[name]; set != nil {
		return set, nil
	}
	return nil, refuse(unix.ENOENT, "no set %s", name)
}

func (s *fakeState) addTable(comment string, exclusive bool) error {
	if s.table != nil {
		if exclusive {
			return refuse(unix.EEXIST, "table %s", s.name)
		}
		return nil
	}
	s.table = &fakeTable{comment: comment, chains: map[string]*fakeChain{}, sets: map[string]*fakeSet{}, counters: map[string]*fakeCounter{}}
	s.did(func() { s.table = nil })
	s.note(nf.OtherObject, "", "")
	return nil
}

func (s *fakeState) deleteTable() error {
	if err := s.needTable(); err != nil {
		return err
	}
	old := s.table
	for name := range old.chains {
		s.note(nf.ChainObject, name, "")
	}
	for name := range old.sets {
		s.note(nf.SetObject, name, "")
	}
	s.note(nf.OtherObject, "", "")
	s.table = nil
	s.did(func() { s.table = old })
	return nil
}

// flushTable removes all rules and nothing else.
func (s *fakeState) flushTable() error {
	if err := s.needTable(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.table.chains)) {
		if err := s.flushChain(name); err != nil {
			return err
		}
	}
	return nil
}

func (s *fakeState) addChain(name, comment string, base *fakeBase, exclusive bool) error {
	if err := s.needTable(); err != nil {
		return err
	}
	if old := s.table.chains[name]; old != nil {
		if exclusive {
			return refuse(unix.EEXIST, "chain %s", name)
		}
		return s.redeclare(name, old, base)
	}
	if err := s.mayAdd("chain "+name, nil); err != nil {
		return err
	}
	if base != nil {
		base.policy = cmp.Or(base.policy, "accept")
	}
	table := s.table
	table.chains[name] = &fakeChain{comment: comment, base: base}
	s.did(func() { delete(table.chains, name) })
	s.note(nf.ChainObject, name, "")
	return nil
}

// redeclare adds a chain that exists: only its policy can change.
func (s *fakeState) redeclare(name string, chain *fakeChain, base *fakeBase) error {
	if base == nil {
		s.touched(nf.ChainObject, name)
		return nil
	}
	old := chain.base
	if old == nil || old.typ != base.typ || old.hook != base.hook || old.priority != base.priority {
		return refuse(unix.EEXIST, "chain %s is attached elsewhere", name)
	}
	base.policy = cmp.Or(base.policy, old.policy)
	chain.base = base
	s.did(func() { chain.base = old })
	s.note(nf.ChainObject, name, "")
	return nil
}

func (s *fakeState) flushChain(name string) error {
	c, err := s.chain(name)
	if err != nil || len(c.rules) == 0 {
		return err
	}
	for _, r := range c.rules {
		s.useRule(r, -1)
	}
	old := c.rules
	c.rules = nil
	s.did(func() { c.rules = old })
	s.note(nf.ChainObject, name, "")
	return nil
}

func (s *fakeState) deleteChain(name string) error {
	if err := s.flushChain(name); err != nil {
		return err
	}
	c := s.table.chains[name]
	if c.users > 0 {
		return refuse(unix.EBUSY, "chain %s is in use", name)
	}
	table := s.table
	delete(table.chains, name)
	s.did(func() { table.chains[name] = c })
	s.note(nf.ChainObject, name, "")
	return nil
}

// addRule adds a rule at an index in the chain; -1 is the end.
func (s *fakeState) addRule(chain string, r fakeRule, at int) error {
	c, err := s.chain(chain)
	if err != nil {
		return err
	}
	for _, name := range r.chains {
		if target := s.table.chains[name]; target == nil {
			return refuse(unix.ENOENT, "no chain %s", name)
		} else if target.base != nil {
			return refuse(unix.EOPNOTSUPP, "chain %s is a base chain", name)
		}
		s.jumps = true
	}
	for _, name := range r.sets {
		set := s.table.sets[name]
		if set == nil {
			return refuse(unix.ENOENT, "no set %s", name)
		}
		if strings.Contains(r.text, "update @"+name+" {") && (!set.dynamic || !set.timeout) {
			return refuse(unix.EOPNOTSUPP, "packets cannot write set %s: it lacks a flag", name)
		}
	}
	for _, name := range r.counters {
		if s.table.counters[name] == nil {
			return refuse(unix.ENOENT, "no counter %s", name)
		}
	}
	if at < 0 {
		at = len(c.rules)
	}
	old := c.rules
	c.rules = slices.Insert(slices.Clone(old), at, r)
	s.did(func() { c.rules = old })
	s.note(nf.ChainObject, chain, "")
	s.useRule(r, 1)
	s.jumps = s.jumps || len(r.sets) > 0
	return nil
}

// useRule adds n, 1 or -1, to the use counts of what a rule refers to.
func (s *fakeState) useRule(r fakeRule, n int) {
	for _, name := range r.chains {
		s.useChain(name, n)
	}
	for _, name := range r.sets {
		set := s.table.sets[name]
		set.users += n
		s.did(func() { set.users -= n })
	}
	for _, name := range r.counters {
		counter := s.table.counters[name]
		counter.users += n
		s.did(func() { counter.users -= n })
	}
}

func (s *fakeState) useChain(name string, n int) {
	c := s.table.chains[name]
	c.users += n
	s.did(func() { c.users -= n })
}

func (s *fakeState) addSet(name string, set *fakeSet, exclusive bool) error {
	if err := s.needTable(); err != nil {
		return err
	}
	if old := s.table.sets[name]; old != nil {
		if exclusive || old.isMap != set.isMap || width(old.key) != width(set.key) || width(old.value) != width(set.value) || old.verdicts != set.verdicts {
			return refuse(unix.EEXIST, "set %s", name)
		}
		s.touched(nf.SetObject, name)
		return nil
	}
	table := s.table
	set.name, table.sets[name] = name, set
	s.declared[name] = true
	s.did(func() { delete(table.sets, name) })
	s.note(nf.SetObject, name, "")
	return nil
}

func (s *fakeState) flushSet(name string) error {
	set, err := s.set(name)
	if err != nil || set.len() == 0 {
		return err
	}
	for _, elements := range []map[string]fakeElement{set.elements, set.texts} {
		for key, e := range elements {
			s.useElement(set, e, -1)
			s.note(nf.ElementObject, set.name, key)
		}
	}
	elements, texts := set.elements, set.texts
	set.elements, set.texts = map[string]fakeElement{}, map[string]fakeElement{}
	s.did(func() { set.elements, set.texts = elements, texts })
	return nil
}

func (s *fakeState) deleteSet(name string) error {
	set, err := s.set(name)
	if err != nil {
		return err
	}
	if set.users > 0 {
		return refuse(unix.EBUSY, "set %s is in use", name)
	}
	noted := len(s.write.Objects)
	if err := s.flushSet(name); err != nil {
		return err
	}
	s.write.Objects = s.write.Objects[:noted] // the kernel does not list the elements that go with a set
	table := s.table
	delete(table.sets, name)
	s.did(func() { table.sets[name] = set })
	s.note(nf.SetObject, name, "")
	return nil
}

func (s *fakeState) useElement(set *fakeSet, e fakeElement, n int) {
	chain := e.verdict.chain
	if chain == "" {
		return
	}
	s.useChain(chain, n)
	set.goes[chain] += n
	s.did(func() { set.goes[chain] -= n })
}

// addElement adds an element to elements, one of the set's two maps.
func (s *fakeState) addElement(set *fakeSet, elements map[string]fakeElement, key string, e fakeElement, exclusive bool) error {
	if set.verdicts != (e.verdict.word != "") || !set.verdicts && len(e.value) != width(set.value) {
		return refuse(unix.EINVAL, "the value does not fit the map")
	}
	if e.verdict.chain != "" {
		if c := s.table.chains[e.verdict.chain]; c == nil {
			return refuse(unix.ENOENT, "no chain %s", e.verdict.chain)
		} else if c.base != nil {
			return refuse(unix.EOPNOTSUPP, "chain %s is a base chain", e.verdict.chain)
		}
	}
	if old, ok := elements[key]; ok {
		if exclusive || !bytes.Equal(old.value, e.value) || old.verdict != e.verdict {
			return refuse(unix.EEXIST, "the element")
		}
		return nil
	}
	if set.size > 0 && set.len() >= set.size {
		return refuse(unix.ENFILE, "the set holds no more than %d elements", set.size)
	}
	elements[key] = e
	s.did(func() { delete(elements, key) })
	s.useElement(set, e, 1)
	s.note(nf.ElementObject, set.name, key)
	s.jumps = s.jumps || e.verdict.chain != ""
	return nil
}

func (s *fakeState) deleteElement(set *fakeSet, elements map[string]fakeElement, key string) error {
	e, ok := elements[key]
	if !ok {
		return refuse(unix.ENOENT, "no such element")
	}
	s.useElement(set, e, -1)
	delete(elements, key)
	s.did(func() { elements[key] = e })
	s.note(nf.ElementObject, set.name, key)
	return nil
}
