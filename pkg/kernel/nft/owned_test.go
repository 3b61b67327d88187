package nft

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// TestKernelOwnedTable adds an owned table to the kernel and to the fake: it ends with its Table.
func TestKernelOwnedTable(t *testing.T) {
	fake := NewFake(knftables.IPv4Family, testTable)
	for name, table := range map[string]Table{"kernel": openKernel(t, knftables.IPv4Family), "fake": fake} {
		add := batch(func(b *Batch) {
			b.AddOwnedTable()
			b.AddBaseChain(Chain{Name: "hooked", Type: "filter", Hook: 1, Priority: -350})
		})
		if err := add.run(t.Context(), table); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		objects, err := table.Objects(t.Context())
		if want := (Chain{Name: "hooked", Type: "filter", Hook: 1, Priority: -350}); err != nil || len(objects.Chains) != 1 || objects.Chains[0] != want {
			t.Errorf("%s: %+v, %v", name, objects, err)
		}
		if err := add.run(t.Context(), table); !errors.Is(err, unix.EEXIST) {
			t.Errorf("%s: added twice: %v", name, err)
		}
		if name == "kernel" {
			other, err := Open(knftables.IPv4Family, testTable)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			})
			if err := add.run(t.Context(), other); !errors.Is(err, unix.EPERM) {
				t.Errorf("added by another socket: %v", err)
			}
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := nft(t, "list", "tables"); left != "" {
		t.Errorf("after Close: %s", left)
	}
	if left := fake.Dump(); left != "" {
		t.Errorf("the fake: %s", left)
	}
}
