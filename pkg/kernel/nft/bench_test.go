package nft_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// The sizes of the benchmarks' cluster: 45,000 frontends; 5,000 of them have 50 endpoints each.
const (
	benchFrontends = 45_000
	benchEndpoints = 250_000
	benchChunk     = 10_000
)

// BenchmarkEncode is the cost of one element in a batch, without the kernel.
func BenchmarkEncode(b *testing.B) {
	batch := nf.NewBatch(nf.IPv4, testTable, 0)
	e := &nf.Element{Key: slotKey(1, 0), Value: endpointValue(1), Comment: "default/some-service:http"}
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
func benchTable(b *testing.B) *nft.KernelTable {
	b.Helper()
	table := openKernel(b, nf.IPv4)
	if err := text(world).run(b.Context(), table); err != nil {
		b.Fatal(err)
	}
	loadEndpoints(b, table)
	batch := table.NewBatch()
	for i := range benchFrontends {
		batch.Add("services", &nf.Element{Key: frontendKey(i), Chain: "pick-2", Comment: "default/some-service:http"})
	}
	if err := table.Commit(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
	return table
}

// loadEndpoints adds the endpoints in chunks.
func loadEndpoints(b *testing.B, table *nft.KernelTable) {
	b.Helper()
	batch := table.NewBatch()
	e := &nf.Element{Key: slotKey(0, 0), Value: endpointValue(0)}
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

// benchCommit measures a batch that f fills.
func benchCommit(b *testing.B, f func(batch *nf.Batch)) {
	b.Helper()
	table := benchTable(b)
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

// benchCall measures a method on the loaded table.
func benchCall(b *testing.B, f func(table *nft.KernelTable) error) {
	b.Helper()
	table := benchTable(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := f(table); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWrite measures writes of elements.
func BenchmarkWrite(b *testing.B) {
	b.Run("load 250k endpoints", func(b *testing.B) {
		table := openKernel(b, nf.IPv4)
		for b.Loop() {
			b.StopTimer()
			err := text(func(tx *nft.Transaction) {
				tx.Add(&knftables.Table{})
				tx.Delete(&knftables.Table{})
				world(tx)
			}).run(b.Context(), table)
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			loadEndpoints(b, table)
		}
	})
	b.Run("replace one endpoint", func(b *testing.B) {
		benchCommit(b, func(batch *nf.Batch) {
			batch.Delete("endpoints", slotKey(7, 3))
			batch.Add("endpoints", &nf.Element{Key: slotKey(7, 3), Value: endpointValue(1)})
		})
	})
	b.Run("replace one verdict", func(b *testing.B) {
		benchCommit(b, func(batch *nf.Batch) {
			batch.Delete("services", frontendKey(7))
			batch.Add("services", &nf.Element{Key: frontendKey(7), Chain: "pick-2"})
		})
	})
	b.Run("refuse the last of 10k endpoints", func(b *testing.B) {
		table := benchTable(b)
		full := table.NewBatch()
		for i := range benchChunk {
			full.Add("endpoints", &nf.Element{Key: slotKey(10_000+i, 0), Value: endpointValue(i)})
		}
		full.Add("endpoints", &nf.Element{Key: slotKey(1, 1), Value: endpointValue(1)})
		for b.Loop() {
			if err := table.Commit(b.Context(), full); !errors.Is(err, unix.EEXIST) {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkVerdict measures what the kernel's validation of the table costs: a verdict is added to and deleted from a map with
// as many as a cluster has. docs/decisions/0020 compares the layouts.
func BenchmarkVerdict(b *testing.B) {
	const both, one = "prerouting output", "prerouting"
	for _, layout := range []struct {
		name, declared, hooks, comment string
		others                         int
	}{
		{"as the backend writes them", "counter;", both, "default/some-service:http", benchFrontends},
		{"without counters", "", both, "default/some-service:http", benchFrontends},
		{"without comments", "counter;", both, "", benchFrontends},
		{"of a fixed size", "counter; size 65536;", both, "default/some-service:http", benchFrontends},
		{"with one base chain", "counter;", one, "default/some-service:http", benchFrontends},
		{"without base chains", "counter;", "", "default/some-service:http", benchFrontends},
		{"with a tenth of the others", "counter;", both, "default/some-service:http", benchFrontends / 10},
	} {
		b.Run(layout.name, func(b *testing.B) {
			table := openKernel(b, nf.IPv4)
			rules := "table ip kube-proxy { map services { typeof ip daddr . meta l4proto . th dport : verdict; " + layout.declared +
				" }; chain pick-1 { dnat to 192.0.2.1; }; chain internal-1 { ip saddr != 192.0.2.0/24 meta mark set 1; goto pick-1; };" +
				" chain services { ip daddr . meta l4proto . th dport vmap @services; };"
			for hook := range strings.FieldsSeq(layout.hooks) {
				rules += " chain " + hook + " { type nat hook " + hook + " priority -100; jump services; };"
			}
			load := exec.Command("nft", rules+" }")
			if out, err := load.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			batch := table.NewBatch()
			for i := range layout.others {
				batch.Add("services", &nf.Element{Key: frontendKey(i), Chain: "internal-1", Comment: layout.comment})
			}
			if err := table.Commit(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			added := &nf.Element{Key: frontendKey(layout.others), Chain: "internal-1", Comment: layout.comment}
			before := processorTime(b)
			for b.Loop() {
				batch.Reset()
				batch.Add("services", added)
				batch.Delete("services", added.Key)
				if err := table.Commit(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns the processor time of this process, which other processes on the machine affect less than the time.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkChain measures what a new chain with a rule costs, by either way.
func BenchmarkChain(b *testing.B) {
	pick := nft.Rule{nft.DNAT{nft.Concat{nft.DestinationAddress, nft.Protocol, nft.DestinationPort, nft.RandomNumber(17)}, "endpoints"}}
	b.Run("add one that reads endpoints", func(b *testing.B) {
		i := 0
		benchCommit(b, func(batch *nf.Batch) {
			if i > 0 {
				batch.DeleteChain(fmt.Sprint("chain-", i))
			}
			i++
			batch.AddChain(nf.Chain{Name: fmt.Sprint("chain-", i)})
			nft.AddRule(batch, fmt.Sprint("chain-", i), pick)
		})
	})
	b.Run("add one that reads services, as text", func(b *testing.B) {
		i := 0
		benchCall(b, func(table *nft.KernelTable) error {
			i++
			return text(func(tx *nft.Transaction) {
				tx.Add(&knftables.Chain{Name: fmt.Sprint("chain-", i)})
				tx.Add(&knftables.Rule{Chain: fmt.Sprint("chain-", i), Rule: "ip daddr . meta l4proto . th dport vmap @services"})
				if i > 1 {
					tx.Delete(&knftables.Chain{Name: fmt.Sprint("chain-", i-1)})
				}
			}).run(b.Context(), table)
		})
	})
	b.Run("add and delete an empty one, as text", func(b *testing.B) {
		benchCall(b, func(table *nft.KernelTable) error {
			return text(func(tx *nft.Transaction) {
				tx.Add(&knftables.Chain{Name: "gone"})
				tx.Delete(&knftables.Chain{Name: "gone"})
			}).run(b.Context(), table)
		})
	})
}

// BenchmarkRead measures reads.
func BenchmarkRead(b *testing.B) {
	b.Run("generation", func(b *testing.B) {
		benchCall(b, func(table *nft.KernelTable) error { _, err := table.Generation(); return err })
	})
	b.Run("objects", func(b *testing.B) {
		benchCall(b, func(table *nft.KernelTable) error { _, err := table.Objects(b.Context()); return err })
	})
	b.Run("fingerprint", func(b *testing.B) {
		benchCall(b, func(table *nft.KernelTable) error { _, _, err := table.Fingerprint(b.Context(), ""); return err })
	})
	b.Run("elements of 250k endpoints", func(b *testing.B) {
		benchCall(b, func(table *nft.KernelTable) error {
			return countElements(table.Elements(b.Context(), "endpoints"), benchEndpoints)
		})
	})
	b.Run("find 250k endpoints", func(b *testing.B) {
		benchCall(b, func(table *nft.KernelTable) error {
			return countElements(table.Find(b.Context(), "endpoints", func(yield func([]byte) bool) {
				for i := range benchEndpoints {
					if !yield(slotKey(i/50, i%50)) {
						return
					}
				}
			}), benchEndpoints)
		})
	})
}

// countElements ranges over elements, and fails if there are not as many as there should be.
func countElements(elements iter.Seq2[nf.Element, error], want int) error {
	n := 0
	for _, err := range elements {
		if err != nil {
			return err
		}
		n++
	}
	if n != want {
		return fmt.Errorf("read %d elements, want %d", n, want)
	}
	return nil
}
