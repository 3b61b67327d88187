package nftables

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestWithoutCaches takes two backends through random clusters: one keeps all that is kept from one sync to the next, the
// other none of it, neither the plan nor what its tables hold. In the end the tables are the same, but for the slots.
func TestWithoutCaches(t *testing.T) {
	for seed := range uint64(10) {
		w := clusters.NewRandom(seed, 12)
		kept, _ := fakes()
		_, tables := fakes()
		for range 30 {
			sync(t, kept, w.Step())
			sync(t, New(testOptions, tables[0], tables[1]), w.Anew())
			for i, f := range kept.families {
				with, err := read(context.Background(), f.table, f.schema)
				without, readErr := read(context.Background(), tables[i], f.schema)
				if err := errors.Join(err, readErr); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(dump(without.holds), dump(with.holds)); d != "" {
					t.Fatalf("seed %d, %s: what was kept changes the table (-without +with):\n%s", seed, f.schema.family, d)
				}
			}
		}
	}
}
