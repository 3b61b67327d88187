package nft

import (
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Batch is a transaction over netlink, which [Table.Commit] makes. Make one with [Table.NewBatch].
type Batch struct {
	*nf.Batch
	family knftables.Family
}

// NewBatch makes an empty batch for a table, of which a commit may have so many bytes; 0 is no limit.
func NewBatch(family knftables.Family, table string, limit int) *Batch {
	return &Batch{nf.NewBatch(familyNumber(family), table, limit), family}
}

// AddChain adds a chain that is not a base chain. Commit fails with EEXIST if the name exists.
func (b *Batch) AddChain(name, comment string) {
	b.Batch.AddChain(nf.Chain{Name: name, Comment: comment})
}

// AddRule appends a rule to a chain. Commit fails with ENOENT if the chain, or a chain or set that the rule uses, does not
// exist.
func (b *Batch) AddRule(chain string, r Rule) {
	var expressions []byte
	for _, s := range r {
		expressions = s.appendTo(expressions, b.family)
	}
	b.Batch.AddRule(chain, expressions, 0)
}

// CutComment cuts a comment to the length that nft accepts, 127 bytes, between two characters.
func CutComment(comment string) string { return nf.CutComment(comment) }
