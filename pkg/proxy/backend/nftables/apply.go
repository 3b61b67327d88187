package nftables

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// maxTransaction is the number of element operations in one transaction. Larger ones are no faster, hold
// the kernel's commit lock for longer, and cost more when they fail.
const maxTransaction = 10_000

// applier writes one patch to a table.
type applier struct {
	ctx    context.Context
	table  nft.Table
	batch  *nft.Batch
	writer *writer

	elements, rules int
	transactions    uint32
	// text tells that nft was started, which takes longer the more the table holds.
	text bool
}

// put writes what the patch brings. Every transaction on the way leaves a correct dataplane: chains and elements
// are complete before anything leads to them, and what used to stand there goes last, in tidyUp.
func (a *applier) put(p *patch) error {
	return a.take(p, a.prepare, a.change, a.hook)
}

// tidyUp removes what the patch has no use for any more, which no packet needs, and takes note of it.
func (a *applier) tidyUp(p *patch) error {
	return a.take(p, a.tidy, a.forget, a.record)
}

func (a *applier) take(p *patch, steps ...func(*patch) error) error {
	if p.empty() {
		return nil
	}
	for _, step := range steps {
		if err := step(p); err != nil {
			return err
		}
	}
	return nil
}

// prepare declares the counters and sets, and writes the chains that are text and that elements go to: those of source
// ranges.
func (a *applier) prepare(p *patch) error {
	tx := a.table.NewTransaction()
	if p.skeleton != nil {
		tx.Add(&knftables.Table{})
		for _, s := range p.skeleton.sets {
			s.declare(tx)
		}
		for _, protocol := range protocols {
			tx.Add(&knftables.Counter{Name: localhostCounter(protocol)})
		}
	}
	for _, t := range p.addTimeouts {
		a.writer.clients(t).declare(tx)
	}
	for _, t := range slices.Concat(p.addChains, p.rewriteChains) {
		if list, ok := p.after.lists.Get(t); ok {
			a.write(tx, a.writer.fromChain(t, list))
		}
	}
	return a.run(tx)
}

// change writes the sized chains and the elements.
//
// The chains go over netlink like the elements: nft is not started, and 1.0.6 could not write them (docs/decisions 0003).
func (a *applier) change(p *patch) error {
	a.batch.Reset()
	isText := func(t target) bool { return t.kind == from } // and written already
	for _, t := range slices.DeleteFunc(slices.Clone(p.addChains), isText) {
		a.batch.AddChain(t.name(), "")
	}
	for _, t := range slices.DeleteFunc(slices.Clone(p.rewriteChains), isText) {
		a.batch.FlushChain(t.name())
	}
	for _, t := range slices.Concat(p.addChains, p.rewriteChains) {
		for _, rule := range a.writer.sized(t) {
			a.batch.AddRule(t.name(), rule)
			a.rules++
		}
	}
	// Chains have a transaction of their own before the elements that lead to them: a packet that came before it and
	// finds such an element would meet an empty chain.
	if err := a.commit(); err != nil {
		return err
	}
	for _, s := range p.strays {
		a.batch.Delete(s.set, []byte(s.key))
	}
	var key, value [64]byte
	for o := range p.ops() {
		if a.batch.Len() >= maxTransaction {
			a.elements += a.batch.Len()
			if err := a.commit(); err != nil {
				return err
			}
		}
		a.encode(o, key[:0], value[:0])
	}
	a.elements += a.batch.Len()
	return a.commit()
}

func (a *applier) commit() error {
	if a.batch.Len() == 0 {
		return nil
	}
	a.transactions++
	err := a.table.Commit(a.ctx, a.batch)
	a.batch.Reset()
	return err
}

// encode adds one operation to the batch, into the space that key and value have.
func (a *applier) encode(o op, key, value []byte) {
	e := o.element(key, value)
	if o.verb != add {
		a.batch.Delete(o.set, e.Key)
	}
	if o.verb != remove {
		a.batch.Add(o.set, &e)
	}
}

// element is what an operation adds, or removes, of which there is the key alone. It is in the space that key and value have.
func (o *op) element(key, value []byte) nft.Element {
	var e nft.Element
	switch o.set {
	case setClusterIPs, setNodeAddrs:
		key = appendAddr(key, o.addr)
	case setHairpins:
		key = appendAddr(appendAddr(key, o.addr), o.addr)
	case setSticky:
		key = appendPool(appendEndpoint(key, o.to), o.pool)
	case mapEndpoints, mapNodePortEnds, mapLocal, mapNodePortLocal:
		key = appendSlot(appendFrontend(key, o.frontend), o.slot)
		if o.verb != remove {
			e.Value = appendEndpoint(value, o.to)
		}
	default:
		key = appendFrontend(key, o.frontend)
		if o.verb != remove {
			e.Chain, e.Comment = o.goes.name(), o.comment
		}
	}
	e.Key = key
	return e
}

// hook writes the fixed chains in one transaction: from then on packets meet this ruleset and no other. Base
// chains of another program in our table are unhooked by the same stroke.
func (a *applier) hook(p *patch) error {
	if p.skeleton == nil {
		return nil
	}
	objects, err := a.table.Objects(a.ctx)
	if err != nil {
		return err
	}
	tx := a.table.NewTransaction()
	for _, c := range objects.Chains {
		at := slices.IndexFunc(p.skeleton.chains, func(o chain) bool { return o.name == c.Name })
		if at < 0 && c.Type != "" || at >= 0 && !p.skeleton.chains[at].hookedAs(c) {
			tx.Flush(&knftables.Chain{Name: c.Name})
			tx.Delete(&knftables.Chain{Name: c.Name})
		}
	}
	for _, c := range p.skeleton.chains { // all first, since they lead to each other
		tx.Add(c.declaration())
	}
	for _, c := range p.skeleton.chains {
		a.write(tx, c)
	}
	return a.run(tx)
}

// tidy removes what nothing leads to any more, packets on their way included.
func (a *applier) tidy(p *patch) error {
	if len(p.delChains) > 0 {
		if err := a.table.Settle(a.ctx); err != nil {
			return err
		}
	}
	for _, t := range p.delChains {
		a.batch.FlushChain(t.name())
		a.batch.DeleteChain(t.name())
	}
	if err := a.commit(); err != nil {
		return err
	}
	tx := a.table.NewTransaction()
	for _, name := range p.leftovers.chains {
		// hook may have deleted it already.
		tx.Add(&knftables.Chain{Name: name})
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, t := range p.delTimeouts {
		tx.Flush(&knftables.Map{Name: t.name()})
		tx.Delete(&knftables.Map{Name: t.name()})
	}
	for _, name := range p.leftovers.maps {
		tx.Flush(&knftables.Map{Name: name})
		tx.Delete(&knftables.Map{Name: name})
	}
	for _, name := range p.leftovers.sets {
		tx.Flush(&knftables.Set{Name: name})
		tx.Delete(&knftables.Set{Name: name})
	}
	for _, name := range p.leftovers.chains {
		tx.Delete(&knftables.Chain{Name: name})
	}
	return a.run(tx)
}

// record notes in the table what its skeleton looks like now, so that whoever reads it next can tell whether
// somebody else changed it.
func (a *applier) record(p *patch) (err error) {
	if p.skeleton == nil && len(p.addChains)+len(p.delChains) == 0 && p.leftovers.none() {
		return nil
	}
	after := p.after
	if after.fingerprint, err = a.table.Fingerprint(a.ctx, chainLayout); err != nil {
		return err
	}
	objects, err := a.table.Objects(a.ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(objects.Chains, func(c nft.Chain) bool { return c.Name == chainLayout }) {
		a.batch.DeleteChain(chainLayout)
	}
	a.batch.AddChain(chainLayout, layoutComment(after.skeleton.digest, after.fingerprint))
	return a.commit()
}

func (a *applier) run(tx *knftables.Transaction) error {
	if tx.NumOperations() == 0 {
		return nil
	}
	a.transactions++
	a.text = true
	return a.table.Run(a.ctx, tx)
}

// write makes a chain hold its rules and nothing else.
func (a *applier) write(tx *knftables.Transaction, c chain) {
	tx.Add(c.declaration())
	tx.Flush(&knftables.Chain{Name: c.name})
	for _, rule := range c.rules {
		tx.Add(&knftables.Rule{Chain: c.name, Rule: rule})
		a.rules++
	}
}

func (c chain) declaration() *knftables.Chain {
	declared := &knftables.Chain{Name: c.name}
	if c.kind != "" {
		declared.Type, declared.Hook, declared.Priority = &c.kind, &c.hook, &c.priority
	}
	return declared
}

// hookedAs tells whether a chain that exists is hooked as it should be.
func (c chain) hookedAs(o nft.Chain) bool {
	if c.kind == "" || o.Type == "" {
		return string(c.kind) == o.Type
	}
	priority, err := knftables.ParsePriority(knftables.IPv4Family, string(c.priority))
	return err == nil && string(c.kind) == o.Type && hookNumbers[c.hook] == o.Hook && int32(priority) == o.Priority
}

// hookNumbers are those of enum nf_inet_hooks.
var hookNumbers = map[knftables.BaseChainHook]uint32{
	knftables.PreroutingHook: 0, knftables.InputHook: 1, knftables.ForwardHook: 2,
	knftables.OutputHook: 3, knftables.PostroutingHook: 4,
}

// declare adds the declaration of a set or map to a transaction.
func (s set) declare(tx *knftables.Transaction) {
	typeOf := s.typeOf
	if s.counts {
		typeOf += "; counter" // for which knftables has no field
	}
	switch {
	case s.clients:
		tx.Add(&knftables.Map{Name: s.name, TypeOf: s.typeOf, Size: knftables.PtrTo[uint64](maxClients),
			Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}})
	case s.isMap:
		tx.Add(&knftables.Map{Name: s.name, Type: s.plainType, TypeOf: typeOf})
	default:
		tx.Add(&knftables.Set{Name: s.name, Type: s.plainType, TypeOf: typeOf})
	}
}

// wrap tells which family an error is about.
func wrap(family fmt.Stringer, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", family, err)
	}
	return nil
}
