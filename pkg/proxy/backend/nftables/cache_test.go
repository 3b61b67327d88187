package nftables

import (
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
			mustSync(t, kept, w.Step())
			mustSync(t, newBackend(testOptions, tables[0], tables[1]), w.FromScratch())
			for i, f := range kept.families {
				with, without := asRead(t, f.table, f.schema, largeSet), asRead(t, tables[i], f.schema, largeSet)
				if d := cmp.Diff(dump(without.holds), dump(with.holds)); d != "" {
					t.Fatalf("seed %d, %s: cached state changes the table (-without +with):\n%s", seed, f.schema.family, d)
				}
			}
		}
	}
}
