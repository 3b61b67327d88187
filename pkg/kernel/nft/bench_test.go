package nft

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// The sizes of the benchmarks' cluster: 45,000 frontends, of which 5,000 have 50 endpoints each.
const (
	benchFrontends = 45_000
	benchEndpoints = 250_000
	benchChunk     = 10_000
)

// BenchmarkEncode is the cost of one element in a batch, without the kernel.
func BenchmarkEncode(b *testing.B) {
	batch := newBatch(knftables.IPv4Family, testTable)
	e := &Element{Key: slotKey(1, 0), Value: endpointValue(1), Comment: "default/some-service:http"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%benchChunk == 0 {
			batch.Reset()
		}
		binary.NativeEndian.PutUint32(e.Key[12:], uint32(i))
		batch.Add("endpoints", e)
	}
}

// benchTable is a table with the cluster loaded, in a namespace of its own.
func benchTable(b *testing.B) *kernelTable {
	b.Helper()
	table := openKernel(b, knftables.IPv4Family)
	if err := text(world).run(b.Context(), table); err != nil {
		b.Fatal(err)
	}
	loadEndpoints(b, table)
	batch := table.NewBatch()
	for i := range benchFrontends {
		batch.Add("services", &Element{Key: frontendKey(i), Chain: "pick-2", Comment: "default/some-service:http"})
	}
	if err := table.Commit(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
	return table
}

// loadEndpoints adds the endpoints in chunks.
func loadEndpoints(b *testing.B, table *kernelTable) {
	b.Helper()
	batch := table.NewBatch()
	e := &Element{Key: slotKey(0, 0), Value: endpointValue(0)}
	for i := range benchEndpoints {
		binary.BigEndian.PutUint16(e.Key[2:], uint16(i/50))
		binary.NativeEndian.PutUint32(e.Key[12:], uint32(i%50))
		binary.BigEndian.PutUint32(e.Value, 10<<24|uint32(i))
		batch.Add("endpoints", e)
		if batch.Len() == benchChunk || i == benchEndpoints-1 {
			if err := table.Commit(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
}

// BenchmarkKernel measures operations on a table of that size.
func BenchmarkKernel(b *testing.B) {
	commit := func(b *testing.B, table *kernelTable, f func(batch *Batch)) {
		b.Helper()
		batch := table.NewBatch()
		b.ReportAllocs()
		for b.Loop() {
			batch.Reset()
			f(batch)
			if err := table.Commit(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("load 250k endpoints", func(b *testing.B) {
		table := openKernel(b, knftables.IPv4Family)
		for b.Loop() {
			b.StopTimer()
			unload := func(tx *knftables.Transaction) { tx.Add(&knftables.Table{}); tx.Delete(&knftables.Table{}); world(tx) }
			if err := text(unload).run(b.Context(), table); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			loadEndpoints(b, table)
		}
	})
	b.Run("replace one endpoint", func(b *testing.B) {
		commit(b, benchTable(b), func(batch *Batch) {
			batch.Delete("endpoints", slotKey(7, 3))
			batch.Add("endpoints", &Element{Key: slotKey(7, 3), Value: endpointValue(1)})
		})
	})
	b.Run("replace one verdict", func(b *testing.B) {
		commit(b, benchTable(b), func(batch *Batch) {
			batch.Delete("services", frontendKey(7))
			batch.Add("services", &Element{Key: frontendKey(7), Chain: "pick-2"})
		})
	})
	b.Run("generation", func(b *testing.B) {
		table := benchTable(b)
		for b.Loop() {
			if _, err := table.Generation(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("objects", func(b *testing.B) {
		table := benchTable(b)
		for b.Loop() {
			if _, err := table.Objects(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fingerprint", func(b *testing.B) {
		table := benchTable(b)
		for b.Loop() {
			if _, err := table.Fingerprint(b.Context(), ""); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read 250k endpoints", func(b *testing.B) {
		table := benchTable(b)
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for _, err := range table.Elements(b.Context(), "endpoints") {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != benchEndpoints {
				b.Fatalf("read %d elements", n)
			}
		}
	})
	b.Run("chain with a rule", func(b *testing.B) {
		pick := Rule{DNAT{Concat{DestinationAddress, Protocol, DestinationPort, RandomNumber(17)}, "endpoints"}}
		table, i := benchTable(b), 0
		commit(b, table, func(batch *Batch) {
			if i > 0 {
				batch.DeleteChain(fmt.Sprint("pick-", 1000+i))
			}
			i++
			name := fmt.Sprint("pick-", 1000+i)
			batch.AddChain(name, "")
			batch.AddRule(name, pick)
		})
	})
	b.Run("chain with a rule as text", func(b *testing.B) {
		table, i := benchTable(b), 0
		for b.Loop() {
			i++
			err := text(func(tx *knftables.Transaction) {
				name := fmt.Sprint("chain-", i)
				tx.Add(&knftables.Chain{Name: name})
				tx.Add(&knftables.Rule{Chain: name, Rule: "ip daddr . meta l4proto . th dport vmap @services"})
				if i > 1 {
					tx.Delete(&knftables.Chain{Name: fmt.Sprint("chain-", i-1)})
				}
			}).run(b.Context(), table)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("delete a chain as text", func(b *testing.B) {
		table := benchTable(b)
		for b.Loop() {
			b.StopTimer()
			if err := batch(func(b *Batch) { b.AddChain("gone", "") }).run(b.Context(), table); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if err := text(func(tx *knftables.Transaction) { tx.Delete(&knftables.Chain{Name: "gone"}) }).run(b.Context(), table); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("refuse one of 10k endpoints", func(b *testing.B) {
		table := benchTable(b)
		full := table.NewBatch()
		for i := range benchChunk {
			full.Add("endpoints", &Element{Key: slotKey(10_000+i, 0), Value: endpointValue(i)})
		}
		full.Add("endpoints", &Element{Key: slotKey(1, 1), Value: endpointValue(1)})
		for b.Loop() {
			if err := table.Commit(b.Context(), full); err == nil || err.(*BatchError).Errno != unix.EEXIST {
				b.Fatal(err)
			}
		}
	})
}
