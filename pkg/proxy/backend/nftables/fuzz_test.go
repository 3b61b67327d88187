package nftables

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
)

// FuzzDiff checks diff between any two plans.
func FuzzDiff(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(3), uint8(5))
	f.Add(uint64(7), uint64(7), uint8(0), uint8(30))
	f.Fuzz(func(t *testing.T, first, second uint64, steps, more uint8) {
		backendtest.BetweenPlans(t, law(), backendtest.Walk{Seed: first, Steps: steps}, backendtest.Walk{Seed: second, Steps: more})
	})
}
