package nft

import (
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Transaction is a change of a table's skeleton: operations of [knftables.Transaction], which is made of them when it runs.
// knftables makes one only after it has run nft twice, and one that knows its table only after two more.
type Transaction struct {
	family     knftables.Family
	table      string
	operations []Operation
}

// NewTransaction makes a transaction without operations for a table.
func NewTransaction(family nf.Family, table string) *Transaction {
	return &Transaction{family: knftables.Family(family.String()), table: table}
}

// Operation is one operation of a transaction, on an object.
type Operation struct {
	Object knftables.Object
	method func(*knftables.Transaction, knftables.Object)
}

// Onto adds the operation to a transaction of knftables.
func (o Operation) Onto(tx *knftables.Transaction) { o.method(tx, o.Object) }

// Add makes an object exist, or appends a rule to its chain.
func (t *Transaction) Add(o knftables.Object) { t.add((*knftables.Transaction).Add, o) }

// Flush empties an object.
func (t *Transaction) Flush(o knftables.Object) { t.add((*knftables.Transaction).Flush, o) }

// Delete removes an object, which must exist and be unused.
func (t *Transaction) Delete(o knftables.Object) { t.add((*knftables.Transaction).Delete, o) }

// Operations returns the operations so far.
func (t *Transaction) Operations() []Operation { return t.operations }

// add adds an operation on an object of the table, whose family and table need not be set.
func (t *Transaction) add(method func(*knftables.Transaction, knftables.Object), o knftables.Object) {
	switch o := o.(type) {
	case *knftables.Table:
		o.Family, o.Name = t.family, t.table
	case *knftables.Chain:
		o.Family, o.Table = t.family, t.table
	case *knftables.Rule:
		o.Family, o.Table = t.family, t.table
	case *knftables.Set:
		o.Family, o.Table = t.family, t.table
	case *knftables.Map:
		o.Family, o.Table = t.family, t.table
	case *knftables.Element:
		o.Family, o.Table = t.family, t.table
	case *knftables.Flowtable:
		o.Family, o.Table = t.family, t.table
	case *knftables.Counter:
		o.Family, o.Table = t.family, t.table
	}
	t.operations = append(t.operations, Operation{o, method})
}

// Onto adds the operations to a transaction of knftables, which keeps the first error of them until it runs.
func (t *Transaction) Onto(tx *knftables.Transaction) *knftables.Transaction {
	for _, o := range t.operations {
		o.Onto(tx)
	}
	return tx
}
