package nftables

import (
	"net/netip"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// small is what a socket can send at once, in bytes: a tenth of what 10,000 operations have.
const small = 64 << 10

// follows programs a plan with more than a socket can send at once, another one with other elements, none, and, after
// another program wrote many elements, the first one again.
func follows(t *testing.T, b *Backend, table nft.Table) {
	t.Helper()
	large, other := plan.Compute(clusters.WithExternalIPs(2000), &plan.Options{}, nil), clusters.NewSized(1500, 3).Plan()
	sizes := clusters.NewSized(0, 0) // each size of a pool has chains
	for number := range 200 {
		sizes.Set(number, number+1)
	}
	for _, p := range []*plan.Plan{large, other, sizes.Plan(), clusters.NewSized(0, 0).Plan()} {
		mustSync(t, b, p)
		holds(t, b, p)
	}
	batch := table.NewBatch()
	for i := range 10_000 {
		batch.Add(b.families[0].schema.ref(setClusterIPs), &nf.Element{Key: append(clusters.AddrAt(198<<24, i).AsSlice(), make([]byte, len(b.families[0].schema.any.AsSlice())-4)...)})
		if batch.Full() {
			if err := table.Commit(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			batch.Reset()
		}
	}
	if err := table.Commit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	b = newBackend(testOptions, table)
	defer b.Close()
	mustSync(t, b, large)
	holds(t, b, large)
}

// TestSmallTransactions checks that no transaction is larger than the socket can send at once.
func TestSmallTransactions(t *testing.T) {
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
		table := nfttest.New(family, TableName)
		table.LimitSend(small)
		follows(t, newBackend(testOptions, table), table)
	}
}

// TestSmallForgetting forgets more clients than can be deleted at once.
func TestSmallForgetting(t *testing.T) {
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
		table := nfttest.New(family, TableName)
		table.LimitSend(small)
		f := newBackend(testOptions, table).families[0]
		const pool = poolID(8)
		tx := table.NewTransaction()
		tx.Add(&knftables.Table{})
		declare(tx, f.schema.clients(pool))
		if err := table.Run(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		endpoint := netip.AddrPortFrom(f.schema.any.Next(), 80)
		for client := range 3000 {
			learn(f, pool, client, endpoint)
		}
		o := &output{ctx: t.Context(), table: table, batch: f.batch}
		var q forgetting
		for q.add([]poolID{pool}); len(q) > 0; {
			if err := q.part(o, f.schema, &content{}); err != nil {
				t.Fatal(err)
			}
		}
		if left := len(clients(t, f, pool)); left > 0 || o.elements != 3000 {
			t.Errorf("%s: %d clients forgotten, %d left", family, o.elements, left)
		}
	}
}
