// Package nfttest is a fake of package nft, for tests.
package nfttest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// ErrInjected is the cause of the failures that a test requested of a Fake.
var ErrInjected = errors.New("failure injected by a test")

// Fake is a [nft.Table] without a kernel, for tests, as strict as the kernel: it refuses what the kernel refuses, with the same
// error number, and makes a change as a whole or not at all. It reads batches from the bytes that the kernel would get, and
// transactions from the text that nft would get.
//
// Unlike a kernel's table it may be used by several goroutines.
type Fake struct {
	family knftables.Family
	name   string

	mu     sync.Mutex
	state  fakeState
	closed bool
	// failing and random make writes fail with a probability.
	failing float64
	random  *rand.Rand
	stats   Stats
	// limit is how many bytes a batch may have; 0 is no limit.
	limit int
}

// batchEnd is the number of bytes of the message that ends a batch.
const batchEnd = 20

// Stats counts the writes of a Fake, and those that failed.
type Stats struct{ Writes, Failed int }

// New returns an empty Fake: its table does not exist yet.
func New(family knftables.Family, table string) *Fake {
	return &Fake{
		family: family, name: table,
		state: fakeState{family: family, name: table, world: &fakeWorld{generation: 1}, writer: fakeProgram},
	}
}

// Beside puts a Fake that was not used yet into the network namespace of another: they have one generation number.
func (f *Fake) Beside(o *Fake) *Fake {
	f.state.world = o.state.world
	return f
}

// FailRandomly makes each write fail with probability p from now on; the same ones for the same seed.
func (f *Fake) FailRandomly(p float64, seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing, f.random = p, rand.New(rand.NewPCG(seed, seed))
}

// Refuse makes the additions of elements, chains and rules fail for which the function returns an error number; nil undoes
// that. object is like "set services" with the element's key, or "chain pick-2" without one. As in the kernel, the error
// names the operation, unless anonymous is true: then it is about the transaction as a whole.
func (f *Fake) Refuse(anonymous bool, refuse func(object string, key []byte) unix.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.refuse, f.state.anonymous = refuse, anonymous
}

// Stats returns the counts so far.
func (f *Fake) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Family is part of [nft.Table].
func (f *Fake) Family() knftables.Family { return f.family }

// Name is part of [nft.Table].
func (f *Fake) Name() string { return f.name }

// NewBatch is part of [nft.Table].
func (f *Fake) NewBatch() *nft.Batch { return nft.NewBatch(f.family, f.name, f.limit) }

// LimitSend makes a Commit of more than so many bytes fail from now on, and limits batches that are made later.
func (f *Fake) LimitSend(size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = size
}

// NewTransaction is part of [nft.Table].
func (f *Fake) NewTransaction() *nft.Transaction { return nft.NewTransaction(f.family, f.name) }

// Settle is part of [nft.Table]. A Fake has no packets.
func (f *Fake) Settle(context.Context) error { return nil }

// Close is part of [nft.Table]. Dump still works.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// Run is part of [nft.Table].
func (f *Fake) Run(ctx context.Context, tx *nft.Transaction) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	commands, err := f.parse(tx)
	if err == nil && len(commands) == 0 {
		return nil
	}
	if err == nil {
		err = f.write(ctx, func() error { return f.state.runAll(commands) })
	}
	return f.wrap("run a transaction", err)
}

// Commit is part of [nft.Table].
func (f *Fake) Commit(ctx context.Context, b *nft.Batch) error {
	if b.Err() != nil {
		return b.Err()
	}
	if b.Len() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.write(ctx, func() error {
		if f.limit > 0 && len(b.Bytes())+batchEnd > f.limit {
			return unix.EMSGSIZE
		}
		return f.state.commit(b)
	})
	if refused, ok := errors.AsType[*nft.BatchError](err); ok {
		return refused
	}
	return f.wrap("commit a batch", err)
}

// write makes a change, or fails if a test requested that.
func (f *Fake) write(ctx context.Context, change func() error) error {
	if err := f.mayRead(ctx); err != nil {
		return err
	}
	f.stats.Writes++
	err := ErrInjected
	if f.random == nil || f.random.Float64() >= f.failing {
		err = change()
	}
	if err != nil {
		f.stats.Failed++
	}
	return err
}

func (f *Fake) mayRead(ctx context.Context) error {
	if f.closed {
		return nf.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Objects is part of [nft.Table].
func (f *Fake) Objects(ctx context.Context) (nft.Objects, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.mayRead(ctx); err != nil {
		return nft.Objects{}, f.wrap("list the table's objects", err)
	}
	t := f.state.table
	if t == nil {
		return nft.Objects{}, nil
	}
	o := nft.Objects{Exists: true}
	for name, c := range t.chains {
		chain := nft.Chain{Name: name, Comment: c.comment}
		if c.base != nil {
			chain.Type, chain.Hook, chain.Priority, chain.Drops = c.base.typ, c.base.hook, c.base.priority, c.base.policy == "drop"
		}
		o.Chains = append(o.Chains, chain)
	}
	for name, s := range t.sets {
		o.Sets = append(o.Sets, nft.Set{Name: name, Map: s.isMap, Count: s.len()})
	}
	slices.SortFunc(o.Chains, func(a, b nft.Chain) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(o.Sets, func(a, b nft.Set) int { return cmp.Compare(a.Name, b.Name) })
	return o, nil
}

// Rules is part of [nft.Table].
func (f *Fake) Rules(ctx context.Context) (map[string][]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.mayRead(ctx)
	if err == nil {
		err = f.state.needTable()
	}
	if err != nil {
		return nil, f.wrap("list rules", err)
	}
	return f.state.rules(), nil
}

// Fingerprint is part of [nft.Table].
func (f *Fake) Fingerprint(ctx context.Context, except string) (digest string, objects map[string]string, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.mayRead(ctx); err != nil {
		return "", nil, f.wrap("fingerprint the table", err)
	}
	if f.state.table == nil {
		return "", nil, nil
	}
	text := f.state.dump(dumpOptions{except: except, skeleton: true})
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:nf.FingerprintLen]), objectsOf(text), nil
}

// Elements is part of [nft.Table]. The elements are sorted by key.
func (f *Fake) Elements(ctx context.Context, set string) iter.Seq2[nft.Element, error] {
	return func(yield func(nft.Element, error) bool) {
		elements, err := f.elements(ctx, set)
		if err != nil {
			yield(nft.Element{}, f.wrap("read the elements of "+set, err))
			return
		}
		for _, e := range elements {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (f *Fake) elements(ctx context.Context, set string) ([]nft.Element, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.mayRead(ctx); err != nil {
		return nil, err
	}
	if f.state.table == nil || f.state.table.sets[set] == nil {
		return nil, unix.ENOENT
	}
	s := f.state.table.sets[set]
	out := make([]nft.Element, 0, s.len())
	for key, e := range s.elements {
		out = append(out, nft.Element{
			Key: []byte(key), Value: bytes.Clone(e.value), Chain: e.verdict.chain, Comment: e.comment,
			Packets: e.packets, Bytes: e.bytes,
		})
	}
	slices.SortFunc(out, func(a, b nft.Element) int { return bytes.Compare(a.Key, b.Key) })
	return out, nil
}

// Find is part of [nft.Table].
func (f *Fake) Find(ctx context.Context, set string, keys iter.Seq[[]byte]) iter.Seq2[nft.Element, error] {
	return func(yield func(nft.Element, error) bool) {
		elements, err := f.elements(ctx, set)
		if err != nil {
			yield(nft.Element{}, f.wrap("read elements of "+set, err))
			return
		}
		for key := range keys {
			if len(key) != f.keyLen(set) {
				yield(nft.Element{}, f.wrap("read elements of "+set, unix.EINVAL))
				return
			}
			i, ok := slices.BinarySearchFunc(elements, key, func(e nft.Element, key []byte) int { return bytes.Compare(e.Key, key) })
			if ok && !yield(elements[i], nil) {
				return
			}
		}
	}
}

func (f *Fake) keyLen(set string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.table == nil || f.state.table.sets[set] == nil {
		return 0
	}
	return width(f.state.table.sets[set].key)
}

// Generation is part of [nft.Table].
func (f *Fake) Generation(ctx context.Context) (nft.Generation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.mayRead(ctx); err != nil {
		return 0, f.wrap("read the generation", err)
	}
	return f.state.world.now(), nil
}

// Count adds to an element's counter, as packets do. It panics if the element does not exist or has no counter.
func (f *Fake) Count(set string, key []byte, packets, octets uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state.table.sets[set]
	e, ok := s.elements[string(key)]
	if !ok || !s.counter {
		panic("nfttest.Fake.Count: no such element, or " + set + " has no counter")
	}
	e.packets += packets
	e.bytes += octets
	s.elements[string(key)] = e
}

// Learn writes an element into a dynamic map, as a packet does in an [nft.Update]: a key that exists keeps its value, a full map
// stays as it is, and the generation does not change. It panics if the map is not dynamic or the element does not fit.
func (f *Fake) Learn(set string, e *nft.Element) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state.table.sets[set]
	if !s.dynamic || len(e.Key) != width(s.key) || len(e.Value) != width(s.value) {
		panic("nfttest.Fake.Learn: " + set + " is not dynamic, or the element does not fit")
	}
	if _, ok := s.elements[string(e.Key)]; !ok && (s.size == 0 || s.len() < s.size) {
		s.elements[string(e.Key)] = fakeElement{value: bytes.Clone(e.Value)}
	}
}

// External returns a second process that changes the table. FailRandomly does not apply to its writes.
func (f *Fake) External() *External { return &External{f} }

// External is another process that changes a Fake's table.
type External struct{ fake *Fake }

// Run makes a change of the skeleton, or of elements, from text.
func (e *External) Run(tx *nft.Transaction) error {
	e.fake.mu.Lock()
	defer e.fake.mu.Unlock()
	commands, err := e.fake.parse(tx)
	if err != nil {
		return err
	}
	return e.write(func() error { return e.fake.state.runAll(commands) })
}

// Commit makes a change of elements.
func (e *External) Commit(b *nft.Batch) error {
	e.fake.mu.Lock()
	defer e.fake.mu.Unlock()
	return e.write(func() error { return e.fake.state.commit(b) })
}

// write makes a change as another program.
func (e *External) write(change func() error) error {
	e.fake.state.writer = ExternalProgram
	defer func() { e.fake.state.writer = fakeProgram }()
	return change()
}

// DeleteElement deletes an element.
func (e *External) DeleteElement(set string, key []byte) error {
	b := e.fake.NewBatch()
	b.Delete(set, key)
	return e.Commit(b)
}

// AddElement adds an element.
func (e *External) AddElement(set string, element *nft.Element) error {
	b := e.fake.NewBatch()
	b.Add(set, element)
	return e.Commit(b)
}

// AddRule appends a rule to a chain.
func (e *External) AddRule(chain, rule string) error {
	tx := e.fake.NewTransaction()
	tx.Add(&knftables.Rule{Chain: chain, Rule: rule})
	return e.Run(tx)
}

// FlushRuleset deletes the table and its content, as `nft flush ruleset` does.
func (e *External) FlushRuleset() error {
	tx := e.fake.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	return e.Run(tx)
}

// Elsewhere makes a change in another table, which only increments the generation.
func (e *External) Elsewhere() {
	e.fake.mu.Lock()
	defer e.fake.mu.Unlock()
	e.fake.state.world.wrote(nf.Write{Program: ExternalProgram})
}
