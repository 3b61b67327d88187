package nftables

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// FuzzDiff holds diff to its law between any two plans: what the table holds after the patch is what was
// wanted, and from there to the same there is nothing to do. The plans need not follow one another.
func FuzzDiff(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(3), uint8(5))
	f.Add(uint64(7), uint64(7), uint8(0), uint8(30))
	f.Fuzz(func(t *testing.T, first, second uint64, steps, more uint8) {
		from, to := clusters.NewRandom(first, 12), clusters.NewRandom(second, 12)
		before, after := from.Step(), to.Step()
		for range int(steps) % 40 {
			before = from.Step()
		}
		for range int(more) % 40 {
			after = to.Step()
		}
		b, _ := fakes()
		sync(t, b, before)
		sync(t, b, after)
		holds(t, b, after)
		for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			want := render(after, testOptions, nothing(newSchema(family)))
			if patch := diff(&state{holds: want}, want); !patch.empty() {
				t.Fatalf("%s: from a ruleset to itself there is something to do", family)
			}
		}
	})
}
