package nft

import (
	"strings"
	"testing"

	"sigs.k8s.io/knftables"
)

// TestEarlierError runs transactions with an operation that knftables does not accept, which it reports only in their text: alone,
// and after one that it accepts.
func TestEarlierError(t *testing.T) {
	kernel, err := Open(knftables.IPv4Family, testTable)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	for _, table := range []Table{kernel, NewFake(knftables.IPv4Family, testTable)} {
		for _, accepted := range []int{0, 1} {
			tx := table.NewTransaction()
			for range accepted {
				tx.Add(&knftables.Table{Comment: new("# ERROR: no error")})
			}
			if text, err := commands(tx); err != nil || strings.Count(text, "\n") != accepted {
				t.Errorf("%T: %q, %v", table, text, err)
			}
			tx.Add(&knftables.Chain{})
			if err := table.Run(t.Context(), tx); err == nil || !strings.Contains(err.Error(), "no name specified for chain") {
				t.Errorf("%T, after %d operations: %v", table, accepted, err)
			}
		}
	}
}
