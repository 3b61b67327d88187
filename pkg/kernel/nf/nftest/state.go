package nftest

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

type table struct {
	// number is the place of the table among others.
	number   uint64
	userdata []byte
	chains   map[string]*chain
	sets     map[string]*set
	objects  map[string]*object
	// flowtables have devices.
	flowtables map[string]*flowtable
}

type chain struct {
	base
	userdata []byte
	rules    []*rule
	// users counts the rules and elements that go here.
	users int
}

// base is the declaration of a base chain; typ is "" for other chains.
type base struct {
	typ      string
	hook     uint32
	priority int32
	policy   nf.Verdict
}

type rule struct {
	handle                uint64
	expressions, userdata []byte
	uses                  uses
}

type set struct {
	name string
	// declaration is the attributes.
	declaration     []byte
	flags           uint32 // NFT_SET_*
	keyLen, dataLen uint32
	size            uint32
	// verdicts means that values are verdicts; counts that elements have counters.
	verdicts, counts bool
	elements         map[string]element
	// users counts the rules that use it.
	users int
	// goes counts the elements that go to a chain.
	goes map[string]int
}

func (s *set) has(flag uint32) bool { return s.flags&flag != 0 }

type element struct {
	// data is what NFTA_SET_ELEM_DATA holds, chain the one that it goes to.
	data, userdata []byte
	chain          string
	packets, bytes uint64
}

type object struct {
	typ   uint32
	users int
}

// transaction is one that is being made. Each change records how to undo it.
type transaction struct {
	name    nf.TableName
	table   *table
	undo    []func()
	notices []byte
	// jumps means that a rule or element was added that goes to a chain: then the table is validated at the end.
	jumps bool
}

func (k *Kernel) did(undo func()) { k.state.undo = append(k.state.undo, undo) }

// touched records an operation that changes nothing but increments the generation.
func (k *Kernel) touched(command int, name string) error {
	k.did(func() {})
	k.note(command, name)
	return nil
}

func (k *Kernel) chain(name string) (*chain, error) {
	if c := k.state.table.chains[name]; c != nil {
		return c, nil
	}
	return nil, refuse(unix.ENOENT, "no chain %s", name)
}

func (k *Kernel) set(name string) (*set, error) {
	if s := k.state.table.sets[name]; s != nil {
		return s, nil
	}
	return nil, refuse(unix.ENOENT, "no set %s", name)
}

// mayAdd returns the refusal that a test requested for an object, if any.
func (k *Kernel) mayAdd(object string, key []byte) error {
	if asked := k.refuses[k.state.name]; asked != nil {
		if errno := asked(object, key); errno != 0 {
			return refuse(errno, "refused by a test")
		}
	}
	return nil
}

func (k *Kernel) addTable(flags uint32, userdata []byte, exclusive bool) error {
	name := k.state.name
	if k.state.table != nil {
		if exclusive {
			return refuse(unix.EEXIST, "table %s", name.Name)
		}
		return nil
	}
	if flags != 0 {
		return refuse(unix.EOPNOTSUPP, "the fake has no tables with flags")
	}
	k.handle++
	k.tables[name] = &table{number: k.handle, userdata: userdata, chains: map[string]*chain{}, sets: map[string]*set{}, objects: map[string]*object{}, flowtables: map[string]*flowtable{}}
	k.did(func() { delete(k.tables, name) })
	k.note(unix.NFT_MSG_NEWTABLE, "")
	return nil
}

func (k *Kernel) deleteTable() error {
	name, old := k.state.name, k.state.table
	for chain := range old.chains {
		k.note(unix.NFT_MSG_DELCHAIN, chain)
	}
	for set := range old.sets {
		k.note(unix.NFT_MSG_DELSET, set)
	}
	k.note(unix.NFT_MSG_DELTABLE, "")
	delete(k.tables, name)
	k.did(func() { k.tables[name] = old })
	return nil
}

func (k *Kernel) addChain(name string, of base, userdata []byte, exclusive bool) error {
	table := k.state.table
	if old := table.chains[name]; old != nil {
		before := old.base
		switch {
		case exclusive:
			return refuse(unix.EEXIST, "chain %s", name)
		case of.typ == "":
			return k.touched(unix.NFT_MSG_NEWCHAIN, name)
		case before.typ != of.typ || before.hook != of.hook || before.priority != of.priority:
			return refuse(unix.EEXIST, "chain %s is attached elsewhere", name)
		}
		if of.policy != keepPolicy {
			old.policy = of.policy
		}
		k.did(func() { old.base = before })
		k.note(unix.NFT_MSG_NEWCHAIN, name)
		return nil
	}
	if err := k.mayAdd("chain "+name, nil); err != nil {
		return err
	}
	if of.policy == keepPolicy {
		of.policy = nf.Accept
	}
	table.chains[name] = &chain{base: of, userdata: userdata}
	k.did(func() { delete(table.chains, name) })
	k.note(unix.NFT_MSG_NEWCHAIN, name)
	return nil
}

// keepPolicy is a policy that is not given.
const keepPolicy nf.Verdict = 1<<32 - 1

// flushChain deletes a chain's rules, or the one with a handle.
func (k *Kernel) flushChain(name string, handle uint64) error {
	c, err := k.chain(name)
	if err != nil {
		return err
	}
	old := c.rules
	c.rules = nil
	for _, r := range old {
		if handle == 0 || r.handle == handle {
			k.useRule(r, -1)
		} else {
			c.rules = append(c.rules, r)
		}
	}
	if len(old) == len(c.rules) {
		if handle != 0 {
			return refuse(unix.ENOENT, "no such rule")
		}
		return nil
	}
	k.did(func() { c.rules = old })
	k.note(unix.NFT_MSG_DELRULE, name)
	return nil
}

func (k *Kernel) deleteChain(name string, empty bool) error {
	c, err := k.chain(name)
	if err == nil && empty && len(c.rules) > 0 {
		err = refuse(unix.EBUSY, "chain %s has rules", name)
	}
	if err == nil {
		err = k.flushChain(name, 0)
	}
	if err == nil && c.users > 0 {
		err = refuse(unix.EBUSY, "chain %s is in use", name)
	}
	if err != nil {
		return err
	}
	table := k.state.table
	delete(table.chains, name)
	k.did(func() { table.chains[name] = c })
	k.note(unix.NFT_MSG_DELCHAIN, name)
	return nil
}

// addRule adds a rule at the head or the end of a chain.
func (k *Kernel) addRule(chain string, r *rule, head bool) error {
	c, err := k.chain(chain)
	if err != nil {
		return err
	}
	for _, name := range r.uses.chains {
		target, err := k.target(name)
		if err != nil {
			return err
		}
		k.state.jumps = k.state.jumps || target != nil
	}
	for _, name := range slices.Concat(r.uses.sets, r.uses.writes) {
		set, err := k.set(name)
		if err != nil {
			return err
		}
		if slices.Contains(r.uses.writes, name) && !set.has(unix.NFT_SET_EVAL) || slices.Contains(r.uses.timed, name) && !set.has(unix.NFT_SET_TIMEOUT) {
			return refuse(unix.EOPNOTSUPP, "packets cannot write set %s: it lacks a flag", name)
		}
		k.state.jumps = true
	}
	for _, name := range r.uses.objects {
		if k.state.table.objects[name] == nil {
			return refuse(unix.ENOENT, "no object %s", name)
		}
	}
	for _, name := range r.uses.flowtables {
		if k.state.table.flowtables[name] == nil {
			return refuse(unix.ENOENT, "no flowtable %s", name)
		}
	}
	k.handle++
	r.handle = k.handle
	at := len(c.rules)
	if head {
		at = 0
	}
	old := c.rules
	c.rules = slices.Insert(slices.Clone(old), at, r)
	k.did(func() { c.rules = old })
	k.note(unix.NFT_MSG_NEWRULE, chain)
	k.useRule(r, 1)
	k.state.jumps = k.state.jumps || len(r.uses.hooks) > 0 || r.uses.forwards
	return nil
}

// target returns a chain that something goes to.
func (k *Kernel) target(name string) (*chain, error) {
	c, err := k.chain(name)
	if err == nil && c.typ != "" {
		err = refuse(unix.EOPNOTSUPP, "chain %s is a base chain", name)
	}
	return c, err
}

// useRule adds n, 1 or -1, to the use counts of what a rule refers to.
func (k *Kernel) useRule(r *rule, n int) {
	for _, name := range r.uses.chains {
		k.use(&k.state.table.chains[name].users, n)
	}
	for _, name := range slices.Concat(r.uses.sets, r.uses.writes) {
		k.use(&k.state.table.sets[name].users, n)
	}
	for _, name := range r.uses.objects {
		k.use(&k.state.table.objects[name].users, n)
	}
	for _, name := range r.uses.flowtables {
		k.use(&k.state.table.flowtables[name].users, n)
	}
}

func (k *Kernel) use(users *int, n int) {
	*users += n
	k.did(func() { *users -= n })
}

func (k *Kernel) addSet(s *set, exclusive bool) error {
	table := k.state.table
	if old := table.sets[s.name]; old != nil {
		if exclusive || old.has(unix.NFT_SET_MAP) != s.has(unix.NFT_SET_MAP) || old.keyLen != s.keyLen || old.dataLen != s.dataLen || old.verdicts != s.verdicts {
			return refuse(unix.EEXIST, "set %s", s.name)
		}
		return k.touched(unix.NFT_MSG_NEWSET, s.name)
	}
	table.sets[s.name] = s
	k.did(func() { delete(table.sets, s.name) })
	k.note(unix.NFT_MSG_NEWSET, s.name)
	return nil
}

// flushSet deletes a set's elements. The kernel does not list those that go with a set.
func (k *Kernel) flushSet(name string, listed bool) error {
	s, err := k.set(name)
	if err != nil || len(s.elements) == 0 {
		return err
	}
	for key, e := range s.elements {
		k.useElement(s, e, -1)
		if listed {
			k.note(unix.NFT_MSG_DELSETELEM, name, key)
		}
	}
	elements := s.elements
	s.elements = map[string]element{}
	k.did(func() { s.elements = elements })
	return nil
}

func (k *Kernel) deleteSet(name string) error {
	s, err := k.set(name)
	if err == nil && s.users > 0 {
		err = refuse(unix.EBUSY, "set %s is in use", name)
	}
	if err == nil {
		err = k.flushSet(name, false)
	}
	if err != nil {
		return err
	}
	table := k.state.table
	delete(table.sets, name)
	k.did(func() { table.sets[name] = s })
	k.note(unix.NFT_MSG_DELSET, name)
	return nil
}

func (k *Kernel) useElement(s *set, e element, n int) {
	if e.chain == "" {
		return
	}
	k.use(&k.state.table.chains[e.chain].users, n)
	s.goes[e.chain] += n
	k.did(func() { s.goes[e.chain] -= n })
}

func (k *Kernel) addElement(s *set, key string, e element, exclusive bool) error {
	if e.chain != "" {
		if _, err := k.target(e.chain); err != nil {
			return err
		}
	}
	if old, ok := s.elements[key]; ok {
		if exclusive || !bytes.Equal(old.data, e.data) {
			return refuse(unix.EEXIST, "the element")
		}
		return nil
	}
	if s.size > 0 && len(s.elements) >= int(s.size) {
		return refuse(unix.ENFILE, "the set holds no more than %d elements", s.size)
	}
	s.elements[key] = e
	k.did(func() { delete(s.elements, key) })
	k.useElement(s, e, 1)
	k.note(unix.NFT_MSG_NEWSETELEM, s.name, key)
	k.state.jumps = k.state.jumps || e.chain != ""
	return nil
}

func (k *Kernel) deleteElement(s *set, key string) error {
	e, ok := s.elements[key]
	if !ok {
		return refuse(unix.ENOENT, "no such element")
	}
	k.useElement(s, e, -1)
	delete(s.elements, key)
	k.did(func() { s.elements[key] = e })
	k.note(unix.NFT_MSG_DELSETELEM, s.name, key)
	return nil
}

func (k *Kernel) changeObject(name string, typ uint32, add, exclusive bool) error {
	objects := k.state.table.objects
	old := objects[name]
	switch {
	case add && old != nil && exclusive:
		return refuse(unix.EEXIST, "object %s", name)
	case add && old != nil: // the generation stays
	case add:
		objects[name] = &object{typ: typ}
		k.did(func() { delete(objects, name) })
		k.note(unix.NFT_MSG_NEWOBJ, name)
	case old == nil:
		return refuse(unix.ENOENT, "no object %s", name)
	case old.users > 0:
		return refuse(unix.EBUSY, "object %s is in use", name)
	default:
		delete(objects, name)
		k.did(func() { objects[name] = old })
		k.note(unix.NFT_MSG_DELOBJ, name)
	}
	return nil
}

// Count adds to an element's counter, as packets do. It panics if the element does not exist or has no counter.
func (k *Kernel) Count(table nf.TableName, set string, key []byte, packets, octets uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.tables[table].sets[set]
	e, ok := s.elements[string(key)]
	if !ok || !s.counts {
		panic("nftest: Count: no such element, or " + set + " has no counter")
	}
	e.packets += packets
	e.bytes += octets
	s.elements[string(key)] = e
}

// Learn writes an element into a dynamic map, as a packet does: a key that exists keeps its value, a full map stays as it is, and the
// generation does not change. It panics if the map is not dynamic or the element does not fit.
func (k *Kernel) Learn(table nf.TableName, set string, key, value []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.tables[table].sets[set]
	if !s.has(unix.NFT_SET_EVAL) || len(key) != int(s.keyLen) || len(value) != int(s.dataLen) {
		panic("nftest: Learn: " + set + " is not dynamic, or the element does not fit")
	}
	if _, ok := s.elements[string(key)]; !ok && (s.size == 0 || len(s.elements) < int(s.size)) {
		s.elements[string(key)] = element{data: nf.AppendData(nil, unix.NFTA_SET_ELEM_DATA, value)[4:]}
	}
}
