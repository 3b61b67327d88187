package nft

import (
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// KernelTable is the kernel's table, with its connection.
type KernelTable = kernelTable

// Do adds any operation of knftables to a transaction.
func (t *Transaction) Do(method func(*knftables.Transaction, knftables.Object), o knftables.Object) {
	t.add(method, o)
}

// Width returns how many bytes of a key the operands take.
func (c Concat) Width(family nf.Family) int { return c.width(family) }

// Programs is that of the tests inside of the package.
func Programs(t *testing.T, script string) { programs(t, script) }

// OldNumber is that of the tests inside of the package.
func OldNumber(t *testing.T) { oldNumber(t) }
