package nftables

import (
	"context"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// maxTransaction is the number of element operations in one transaction. Larger ones are not faster, hold the kernel's
// commit lock for longer, and cost more if they fail.
const maxTransaction = 10_000

// output writes to one table during one Sync.
type output struct {
	ctx   context.Context
	table nft.Table
	batch *nf.Batch

	elements, rules int
	transactions    uint32
}

// commit writes the batch over netlink.
func (o *output) commit() error {
	if o.batch.Len() == 0 {
		return nil
	}
	err := o.table.Commit(o.ctx, o.batch)
	o.batch.Reset()
	return o.counted(err)
}

// run writes a transaction as text, with nft.
func (o *output) run(tx *nft.Transaction) error {
	if len(tx.Operations()) == 0 {
		return nil
	}
	return o.counted(o.table.Run(o.ctx, tx))
}

// counted counts a transaction that succeeded: the kernel does not count the others.
func (o *output) counted(err error) error {
	if err == nil {
		o.transactions++
	}
	return err
}

// chain replaces the rules of a chain, creating it if necessary.
func (o *output) chain(tx *nft.Transaction, c chain) {
	tx.Add(c.declaration())
	tx.Flush(&knftables.Chain{Name: c.name})
	for _, rule := range c.rules {
		tx.Add(&knftables.Rule{Chain: c.name, Rule: rule})
		o.rules++
	}
}

func (c chain) declaration() *knftables.Chain {
	declared := &knftables.Chain{Name: c.name}
	if c.kind != "" {
		declared.Type, declared.Hook, declared.Priority = &c.kind, &c.hook, &c.priority
		declared.Policy = knftables.PtrTo(knftables.AcceptPolicy) // the default, but another program may have changed it
	}
	return declared
}

// declare adds the declaration of a set or map to a transaction.
func declare(tx *nft.Transaction, s *set) {
	typ, typeOf := s.types()
	var size *uint64
	if s.size > 0 {
		size = new(uint64(s.size))
	}
	var flags []knftables.SetFlag
	switch counter := "; counter"; { // knftables has no field for it
	case s.dynamic():
		flags = []knftables.SetFlag{knftables.DynamicFlag}
		if s.timeout {
			flags = append(flags, knftables.TimeoutFlag)
		}
	case s.counts && typ != "":
		typ += counter
	case s.counts:
		typeOf += counter
	}
	if s.isMap() {
		tx.Add(&knftables.Map{Name: s.name, Type: typ, TypeOf: typeOf, Size: size, Flags: flags})
	} else {
		tx.Add(&knftables.Set{Name: s.name, Type: typ, TypeOf: typeOf, Size: size, Flags: flags})
	}
}

// destroy adds the deletion of a set, map or chain with its content.
func destroy(tx *nft.Transaction, o knftables.Object) {
	tx.Flush(o)
	tx.Delete(o)
}
