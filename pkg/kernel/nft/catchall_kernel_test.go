package nft_test

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// TestKernelCatchAll reads, finds and deletes an element that stands for all other keys, which another program added. The size of
// its map does not include it.
func TestKernelCatchAll(t *testing.T) {
	table := loaded(t)
	before := content(t, table)
	watch, err := nf.OpenWatch(nf.TableName{Family: nf.IPv4, Name: testTable})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	nftProgram(t, "add", "element", "ip", testTable, "services", "{ * : drop }")
	if writes, all := watch.Take(); !all || len(writes) != 1 || writes[0].Objects[0].Key != "" {
		t.Errorf("written: %+v, all %t", writes, all)
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
	mustRun(t, table, batch(func(b *nf.Batch) { b.Delete("services", nil) }))
	if diff := gocmp.Diff(before, content(t, table)); diff != "" {
		t.Error(diff)
	}
}
