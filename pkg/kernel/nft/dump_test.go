package nft_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// midDump is a context that calls do at each message of a dump of elements, where the dump checks its context: so tests
// write in the middle of a dump, each time at the same place.
type midDump struct {
	context.Context
	do func()
}

func (a midDump) Err() error {
	a.do()
	return a.Context.Err()
}

// other opens the table a second time, as another process would.
func other(t *testing.T) nft.Table {
	t.Helper()
	table, err := nft.Open(nf.IPv4, testTable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

// filled loads the world and n more endpoints.
func filled(t *testing.T, n int) *nft.KernelTable {
	t.Helper()
	table := loaded(t)
	mustRun(t, table, batch(func(b *nf.Batch) {
		for i := range n {
			b.Add("endpoints", &nf.Element{Key: slotKey(100+i, 0), Value: endpointValue(i), Comment: fmt.Sprint("default/endpoint-", i)})
		}
	}))
	return table
}

// TestKernelOthersWriteElsewhere reads a large set while others write to other sets all the time, so that the generation
// changes during every dump.
func TestKernelOthersWriteElsewhere(t *testing.T) {
	const n = 20_000
	table, external := filled(t, n), other(t)
	writes := 0
	ctx := midDump{context.Background(), func() {
		writes++
		mustRun(t, external, batch(func(b *nf.Batch) {
			if key := []byte{0x75, 0x31}; writes%2 == 1 {
				b.Add("nodeports", &nf.Element{Key: key})
			} else {
				b.Delete("nodeports", key)
			}
		}))
	}}
	found := map[string]bool{}
	for e, err := range table.Elements(ctx, "endpoints") {
		if err != nil {
			t.Fatal(err)
		}
		found[string(e.Key)+string(e.Value)+e.Comment] = true
	}
	for i := range n {
		if !found[string(slotKey(100+i, 0))+string(endpointValue(i))+fmt.Sprint("default/endpoint-", i)] {
			t.Fatalf("endpoint %d was not read", i)
		}
	}
	if len(found) != n+2 {
		t.Errorf("read %d elements, want %d", len(found), n+2)
	}
	if writes < 4 {
		t.Errorf("only %d writes came in between", writes)
	}
}

// TestKernelOthersWriteIntoTheSet replaces the first and the last element of a dump whenever it is between them, and writes elsewhere: the
// result has each key once, or is an error. A Watch reports what was replaced.
func TestKernelOthersWriteIntoTheSet(t *testing.T) {
	table, external := filled(t, 3000), other(t)
	var keys [][]byte
	for e, err := range table.Elements(t.Context(), "endpoints") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	writes := 0
	ctx := midDump{context.Background(), func() {
		writes++
		mustRun(t, external, batch(func(b *nf.Batch) {
			b.Add("nodeports", &nf.Element{Key: binary.BigEndian.AppendUint16(nil, uint16(writes))})
			for _, key := range [][]byte{keys[0], keys[len(keys)-1]} {
				b.Delete("endpoints", key)
				b.Add("endpoints", &nf.Element{Key: key, Value: endpointValue(10_000 + writes)})
			}
		}))
	}}
	found := map[string]int{}
	for e, err := range table.Elements(ctx, "endpoints") {
		if errors.Is(err, netlink.ErrInterrupted) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		found[string(e.Key)]++
	}
	for _, key := range keys {
		if found[string(key)] != 1 {
			t.Errorf("key %x was read %d times", key, found[string(key)])
		}
	}
	if len(found) != len(keys) || writes < 2 {
		t.Errorf("read %d keys of %d, with %d writes in between", len(found), len(keys), writes)
	}
}

// TestKernelClientsCome reads a set that packets fill while that and others write all the time: one dump finds everything that was
// there before.
func TestKernelClientsCome(t *testing.T) {
	const n = 5000
	table, external := loaded(t), other(t)
	client := func(i int) *nf.Element {
		return &nf.Element{Key: []byte{10, 1, byte(i >> 8), byte(i)}, Value: endpointValue(i)}
	}
	mustRun(t, table, text(func(tx *nft.Transaction) {
		tx.Add(&knftables.Map{Name: "many", TypeOf: "ip saddr : ip daddr . th dport", Size: knftables.PtrTo[uint64](65_536),
			Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}})
	}))
	mustRun(t, table, batch(func(b *nf.Batch) {
		for i := range n {
			b.Add("many", client(i))
		}
	}))
	messages := 0
	ctx := midDump{context.Background(), func() {
		messages++
		mustRun(t, external, batch(func(b *nf.Batch) {
			b.Add("nodeports", &nf.Element{Key: []byte{0x75, byte(messages)}})
			if messages <= 3 { // not always, or else the dump would never end
				b.Add("many", client(n+messages))
			}
		}))
	}}
	found := map[string]bool{}
	for e, err := range table.Elements(ctx, "many") {
		if err != nil {
			t.Fatal(err)
		}
		found[string(e.Key)] = true
	}
	for i := range n {
		if !found[string(client(i).Key)] {
			t.Fatalf("client %d was not read", i)
		}
	}
	if messages < 2 || messages > 12 {
		t.Errorf("%d messages were read; one dump has about 6", messages)
	}
}
