package iptables

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestWithoutCaches applies random changes to two backends, one of which forgets all its state before each sync. Their
// tables must be equal.
func TestWithoutCaches(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		for _, many := range []int{12, 140} {
			w := clusters.NewRandom(uint64(many), many)
			kept, _ := fakes(t, variant)
			_, doors := fakes(t, variant)
			for range 15 {
				sync(t, kept, w.Step())
				sync(t, restarted(t, doors), w.FromScratch())
				for i, f := range kept.families {
					with, err := read(context.Background(), f.door, &ruleset{}, true)
					without, readErr := read(context.Background(), doors[i], &ruleset{}, true)
					if err := errors.Join(err, readErr); err != nil {
						t.Fatal(err)
					}
					if d := cmp.Diff(dump(without), dump(with)); d != "" {
						t.Fatalf("%s: cached state changes the tables (-without +with):\n%s", f.is, d)
					}
				}
			}
		}
	})
}
