package nftest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

type table struct {
	// number is the place of the table among others.
	number     uint64
	userdata   []byte
	chains     map[string]*chain
	sets       map[string]*set
	objects    map[string]*object
	flowtables map[string]*flowtable
}

type chain struct {
	nf.Chain
	rules []*rule
	// users counts the rules and elements that go here.
	users int
}

type rule struct {
	handle                uint64
	expressions, userdata []byte
	uses                  uses
}

type set struct {
	name string
	// declaration is the attributes other than names.
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
	// jumps means that a rule was added, or an element that goes to a chain: then the table is validated at the end.
	jumps bool
}

func (k *Kernel) did(undo func()) { k.state.undo = append(k.state.undo, undo) }

// change puts an object into the table, or removes it if now is nil.
func change[V any](k *Kernel, command int, objects map[string]*V, name string, now *V) {
	put := func(v *V) {
		if objects[name] = v; v == nil {
			delete(objects, name)
		}
	}
	old := objects[name]
	put(now)
	k.did(func() { put(old) })
	k.note(command, name)
}

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

// addChain adds a chain, or changes the policy of a base chain if one is given.
func (k *Kernel) addChain(c nf.Chain, hasPolicy, exclusive bool) error {
	old := k.state.table.chains[c.Name]
	if old == nil {
		if err := k.mayAdd("chain "+c.Name, nil); err != nil {
			return err
		}
		change(k, unix.NFT_MSG_NEWCHAIN, k.state.table.chains, c.Name, &chain{Chain: c})
		return nil
	}
	before := old.Chain
	switch {
	case exclusive:
		return refuse(unix.EEXIST, "chain %s", c.Name)
	case c.Type == "":
		return k.touched(unix.NFT_MSG_NEWCHAIN, c.Name)
	case before.Type != c.Type || before.Hook != c.Hook || before.Priority != c.Priority:
		return refuse(unix.EEXIST, "chain %s is attached elsewhere", c.Name)
	case hasPolicy:
		old.Drops = c.Drops
	}
	k.did(func() { old.Chain = before })
	k.note(unix.NFT_MSG_NEWCHAIN, c.Name)
	return nil
}

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
	change(k, unix.NFT_MSG_DELCHAIN, k.state.table.chains, name, nil)
	return nil
}

// addRule adds a rule at the head or the end of a chain.
func (k *Kernel) addRule(chain string, r *rule, head bool) error {
	c, err := k.chain(chain)
	if err == nil {
		_, err = k.usersOf(r)
	}
	if err != nil {
		return err
	}
	if r.uses.table != "" && r.uses.table != k.state.name.Name {
		return refuse(unix.EINVAL, "the rule has a target of table %s only", r.uses.table)
	}
	for _, name := range r.uses.writes {
		set := k.state.table.sets[name]
		if !set.has(unix.NFT_SET_EVAL) || slices.Contains(r.uses.timed, name) && !set.has(unix.NFT_SET_TIMEOUT) {
			return refuse(unix.EOPNOTSUPP, "packets cannot write set %s: it lacks a flag", name)
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
	k.state.jumps = true
	return nil
}

// target returns a chain that something goes to.
func (k *Kernel) target(name string) (*chain, error) {
	c, err := k.chain(name)
	if err == nil && c.Type != "" {
		err = refuse(unix.EOPNOTSUPP, "chain %s is a base chain", name)
	}
	return c, err
}

// usersOf returns the use counts of what a rule refers to.
func (k *Kernel) usersOf(r *rule) (counts []*int, _ error) {
	for _, name := range r.uses.chains {
		c, err := k.target(name)
		if err != nil {
			return nil, err
		}
		counts = append(counts, &c.users)
	}
	for _, name := range slices.Concat(r.uses.sets, r.uses.writes) {
		s, err := k.set(name)
		if err != nil {
			return nil, err
		}
		counts = append(counts, &s.users)
	}
	for _, name := range r.uses.objects {
		o := k.state.table.objects[name]
		if o == nil {
			return nil, refuse(unix.ENOENT, "no object %s", name)
		}
		counts = append(counts, &o.users)
	}
	for _, name := range r.uses.flowtables {
		f := k.state.table.flowtables[name]
		if f == nil {
			return nil, refuse(unix.ENOENT, "no flowtable %s", name)
		}
		counts = append(counts, &f.users)
	}
	return counts, nil
}

// useRule adds n, 1 or -1, to the use counts of what a rule refers to.
func (k *Kernel) useRule(r *rule, n int) {
	counts, _ := k.usersOf(r) // it exists
	for _, users := range counts {
		k.use(users, n)
	}
}

func (k *Kernel) use(users *int, n int) {
	*users += n
	k.did(func() { *users -= n })
}

func (k *Kernel) addSet(s *set, exclusive bool) error {
	if old := k.state.table.sets[s.name]; old != nil {
		if exclusive || old.has(unix.NFT_SET_MAP) != s.has(unix.NFT_SET_MAP) || old.keyLen != s.keyLen || old.dataLen != s.dataLen || old.verdicts != s.verdicts {
			return refuse(unix.EEXIST, "set %s", s.name)
		}
		return k.touched(unix.NFT_MSG_NEWSET, s.name)
	}
	change(k, unix.NFT_MSG_NEWSET, k.state.table.sets, s.name, s)
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
	change(k, unix.NFT_MSG_DELSET, k.state.table.sets, name, nil)
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
		change(k, unix.NFT_MSG_NEWOBJ, objects, name, &object{typ: typ})
	case old == nil:
		return refuse(unix.ENOENT, "no object %s", name)
	case old.users > 0:
		return refuse(unix.EBUSY, "object %s is in use", name)
	default:
		change(k, unix.NFT_MSG_DELOBJ, objects, name, nil)
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

// CountRule adds packets to the counter of a chain's rule.
func (k *Kernel) CountRule(table nf.TableName, chain string, at int, packets uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.tables[table].chains[chain].rules[at]
	r.expressions = bytes.Clone(r.expressions)
	for e := netlink.ReadAttrs(r.expressions); e.Next(); {
		if name, attrs := nf.ReadExpr(e.Data); string(name) == "counter" {
			n := attrs.Find(unix.NFTA_COUNTER_PACKETS)
			binary.BigEndian.PutUint64(n, binary.BigEndian.Uint64(n)+packets)
		}
	}
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
