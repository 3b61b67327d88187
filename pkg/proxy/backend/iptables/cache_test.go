package iptables

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestWithoutCaches takes two backends through random clusters: one keeps all that is kept from one sync to the next, the
// other none of it, neither the plan nor what was rendered nor what its tables hold. Their tables are the same.
func TestWithoutCaches(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		for _, many := range []int{12, 140} {
			w := clusters.NewRandom(uint64(many), many)
			kept, _ := fakes(variant)
			_, doors := fakes(variant)
			for range 15 {
				sync(t, kept, w.Step())
				sync(t, restarted(doors), w.Anew())
				for i, f := range kept.families {
					with, err := read(context.Background(), f.state.door)
					without, readErr := read(context.Background(), doors[i])
					if err := errors.Join(err, readErr); err != nil {
						t.Fatal(err)
					}
					if d := cmp.Diff(dump(without), dump(with)); d != "" {
						t.Fatalf("%s: what was kept changes the tables (-without +with):\n%s", f.state.family, d)
					}
				}
			}
		}
	})
}
