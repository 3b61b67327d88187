package nft

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestKernelCatchAll reads, finds and deletes an element that stands for all other keys, which another program added. The size of
// its map does not include it.
func TestKernelCatchAll(t *testing.T) {
	table := loaded(t)
	before := content(t, table)
	other, err := table.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	nft(t, "add", "element", "ip", testTable, "services", "{ * : drop }")
	if writes, err := other.Writes(); err != nil || len(writes) != 1 || !slices.ContainsFunc(writes[0].Elements, func(e WrittenElement) bool { return e.Key == "" }) {
		t.Errorf("written: %+v, %v", writes, err)
	}
	all := 0
	for e, err := range table.Elements(t.Context(), "services") {
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Key) == 0 {
			all++
		}
	}
	for e, err := range table.Find(t.Context(), "services", slices.Values([][]byte{{}})) {
		if err != nil || len(e.Key) > 0 {
			t.Errorf("found %+v, %v", e, err)
		}
		all++
	}
	if all != 2 {
		t.Errorf("read and found %d times, want 2", all)
	}
	mustRun(t, table, batch(func(b *Batch) { b.Delete("services", nil) }))
	if diff := gocmp.Diff(before, content(t, table)); diff != "" {
		t.Error(diff)
	}
}
