package nftables

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/laws"
)

// FuzzDiff checks diff between any two plans.
func FuzzDiff(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(3), uint8(5))
	f.Add(uint64(7), uint64(7), uint8(0), uint8(30))
	f.Fuzz(func(t *testing.T, first, second uint64, steps, more uint8) {
		laws.BetweenPlans(t, law(), laws.Walk{Seed: first, Steps: steps}, laws.Walk{Seed: second, Steps: more})
	})
}
