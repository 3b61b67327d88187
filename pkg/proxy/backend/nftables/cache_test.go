package nftables

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestWithoutCaches applies random changes to two backends, one of which forgets all its state before each sync. In the
// end the tables must be equal except for the slots.
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
					t.Fatalf("seed %d, %s: cached state changes the table (-without +with):\n%s", seed, f.schema.family, d)
				}
			}
		}
	}
}
