package nftables

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// FuzzDiff checks diff between any two plans: after the patch the table has the desired content, and then nothing is
// left to do. The plans need not be successive.
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
		mustSync(t, b, before)
		mustSync(t, b, after)
		holds(t, b, after)
		for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			want := render(after, testOptions, nothing(newSchema(family, 0, false)))
			if patch := diff(&state{holds: want}, want); !patch.empty() {
				t.Fatalf("%s: the patch from a ruleset to itself is not empty", family)
			}
		}
	})
}
