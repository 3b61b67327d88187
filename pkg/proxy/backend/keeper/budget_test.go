package keeper

import (
	"testing"
	"time"
)

// TestBudget checks that a burst is allowed, and then the given share.
func TestBudget(t *testing.T) {
	now := time.Unix(1e9, 0)
	const share, most, cost = 0.0025, 200 * time.Millisecond, 10 * time.Millisecond
	b := &budget{share: share, most: most}
	compared := 0
	for range 100_000 { // one check every second
		if now = now.Add(time.Second); b.allows(now) {
			compared++
			b.spend(cost)
		}
	}
	if spent := time.Duration(compared) * cost; spent > 250*time.Second+most+cost || spent < 249*time.Second {
		t.Errorf("spent %s in 100,000 s", spent)
	}
	b = &budget{share: share, most: most}
	for burst := range 20 {
		if !b.allows(now) {
			t.Fatalf("only %d checks were allowed", burst)
		}
		b.spend(cost)
	}
	if b.allows(now) {
		t.Error("the burst is not limited")
	}
}
