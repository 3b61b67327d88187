package nft

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// TestKernelWatch has three programs write: this one, nft to the same table, and nft to another one.
func TestKernelWatch(t *testing.T) {
	table := openKernel(t, knftables.IPv4Family)
	if err := text(world).run(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	watcher, err := table.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, err := table.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := batch(elements).run(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	nft(t, "delete element ip "+testTable+" nodeports { 30000 }")
	nft(t, "add table inet elsewhere; add chain inet elsewhere some; add table ip elsewhere")
	nft(t, "flush ruleset")
	writes, err := watcher.Writes()
	if err != nil {
		t.Fatal(err)
	}
	ours, here, there := TableName{knftables.IPv4Family, testTable}, TableName{knftables.InetFamily, "elsewhere"}, TableName{knftables.IPv4Family, "elsewhere"}
	for i, want := range [][]TableName{{ours}, {ours}, {here, there}, {ours, here, there}} {
		if i >= len(writes) || writes[i].Generation.Since(before) != uint32(i+1) {
			t.Fatalf("transaction %d: got %+v", i, writes)
		}
		slices.SortFunc(writes[i].Tables, func(a, b TableName) int { return slices.Index(want, a) - slices.Index(want, b) })
		if !slices.Equal(writes[i].Tables, want) {
			t.Errorf("transaction %d wrote %v, want %v", i, writes[i].Tables, want)
		}
		if own := writes[i].Program != "nft"; own != (i == 0) || writes[i].Process == 0 {
			t.Errorf("transaction %d: program %q, process %d", i, writes[i].Program, writes[i].Process)
		}
	}
	if deleted := writes[1]; deleted.Unlisted || len(deleted.Elements) != 1 {
		t.Errorf("the elements of the transaction that deletes one: %v, unlisted %v", deleted.Elements, deleted.Unlisted)
	}
	if flushed := writes[3]; !flushed.Unlisted {
		t.Errorf("flush ruleset is taken for a write of %d elements; the kernel does not list those of a set that is deleted", len(flushed.Elements))
	}
	if err := watcher.Close(); err != nil {
		t.Error(err)
	}
}

// TestKernelWatchLosesSome writes more than a subscription keeps: no transaction is reported with tables of another one.
func TestKernelWatchLosesSome(t *testing.T) {
	table := openKernel(t, knftables.IPv4Family)
	small, err := netlink.Subscribe(unix.NFNLGRP_NFTABLES, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	watcher := &kernelWatcher{socket: small}
	if err := text(world).run(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	loadable := table.NewBatch()
	for i := range 10_000 {
		loadable.Add("endpoints", &Element{Key: slotKey(i, 0), Value: endpointValue(i)})
	}
	if err := table.Commit(t.Context(), loadable); err != nil {
		t.Fatal(err)
	}
	if writes, err := watcher.Writes(); err != nil || len(writes) != 0 {
		t.Errorf("after a loss: %v, %v", writes, err)
	}
	for i := range 3 {
		nft(t, fmt.Sprintf("add table ip elsewhere-%d", i))
		writes, err := watcher.Writes()
		if want := min(i, 1); err != nil || len(writes) != want || want > 0 && writes[0].Tables[0].Name != fmt.Sprintf("elsewhere-%d", i) {
			t.Errorf("%d transactions after the loss: %+v, %v; want %d", i+1, writes, err, want)
		}
	}
	if err := watcher.Close(); err != nil {
		t.Error(err)
	}
}
