package ipt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf/nftest"
)

// onFake returns tables without programs on a fake nf_tables, where nat has a built-in chain.
func onFake(t *testing.T) (*kernelTables, *nftest.Kernel) {
	t.Helper()
	kernel := nftest.New()
	conn := nf.New(kernel.Open("kube-proxy", 1))
	tables := &kernelTables{family: IPv4, Programs: &programs{family: IPv4}, direct: newDirect(conn, IPv4)}
	t.Cleanup(func() {
		if err := tables.Close(); err != nil {
			t.Error(err)
		}
	})
	kernel.AddTable(nf.TableName{Family: nf.IPv4, Name: "nat"})
	b := nf.NewBatch(nf.IPv4, "nat", 0)
	b.AddChain(nf.Chain{Name: "PREROUTING", Type: "nat", Priority: -100})
	if err := tables.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return tables, kernel
}

// TestOnFake writes, compares, looks for and inserts rules over netlink while another program writes the same chains: none of it runs a
// program, and what differs is found.
func TestOnFake(t *testing.T) {
	tables, kernel := onFake(t)
	other := nf.New(kernel.Open("other", 2))
	watch := kernel.Watch(nf.TableName{Family: nf.IPv4, Name: "nat"})
	defer watch.Close()
	for _, text := range encodable {
		name, text, _ := strings.Cut(text, " ")
		if name != "NAT" || strings.Contains(text, "MASQUERADE") || strings.Contains(text, "DNAT") {
			continue
		}
		want := &Transaction{Table: "nat", Chains: []Chain{{Name: "KUBE-B"}, {"KUBE-A", []Rule{rule(t, text), {Target: Jump("KUBE-B")}}}},
			Inserted: []ChainRule{{"PREROUTING", Rule{Target: Jump("KUBE-A")}}}}
		if has, err := tables.among(t.Context(), "nat", "PREROUTING"); err != nil || has(want.Inserted[0].Rule) {
			want.Inserted = nil
		}
		if err := tables.Write(t.Context(), want); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !tables.holds(t, want.Chains[1]) {
			t.Errorf("%s: the chain differs from what was written", text)
		}
		b := nf.NewBatch(nf.IPv4, "nat", 0)
		b.InsertRule("KUBE-A", nf.AppendImmediate(nil, nf.Return, ""), 0)
		if err := other.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if tables.holds(t, want.Chains[1]) {
			t.Errorf("%s: another rule in the chain is not found", text)
		}
		writes, all := watch.Take()
		if !all || len(writes) != 2 || writes[0].Program != "kube-proxy" || writes[1].Program != "other" || writes[1].Objects[0].Name != "KUBE-A" {
			t.Errorf("%s: noticed %+v, all %t", text, writes, all)
		}
	}
	gone := &Transaction{Table: "nat", Deleted: []string{"KUBE-B"}}
	if err := tables.write(t.Context(), gone); !errors.Is(err, unix.EBUSY) {
		t.Errorf("delete a chain that another one jumps to: %v", err)
	}
}

// holds reports whether the kernel has a chain.
func (t *kernelTables) holds(test *testing.T, c Chain) bool {
	test.Helper()
	compared, err := t.Compare(test.Context(), "nat", func(string) ([]Rule, bool) { return c.Rules, false }, c.Name)
	if err != nil {
		test.Fatal(err)
	}
	return compared[c.Name].Equal
}

// TestHeldKernel compares while another process holds nf_tables' lock.
func TestHeldKernel(t *testing.T) {
	tables, kernel := onFake(t)
	release := kernel.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := tables.write(ctx, &Transaction{Table: "nat", Chains: []Chain{{Name: "KUBE-A"}}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
	release()
	if has, err := tables.among(t.Context(), "nat", "KUBE-A"); err != nil || has(Rule{Target: Jump("KUBE-B")}) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestUnansweredBatch writes transactions while the kernel has not finished a batch whose caller has given up: neither a batch nor a
// program may write before it, and the error names the kernel, not a program. Afterwards inputs are written again.
func TestUnansweredBatch(t *testing.T) {
	tables, _ := onFake(t)
	tables.Programs.(*programs).restore = "true"
	d := tables.direct
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	if finished, _ := d.Do(ctx, func() error { cancel(); <-release; return nil }); finished {
		t.Fatal("the batch has finished")
	}
	known := &Transaction{Table: "nat", Chains: []Chain{{Name: "KUBE-A"}}}
	listed := &Transaction{Table: "nat", Chains: []Chain{{Name: "KUBE-A", Rules: []Rule{Listed("-j DROP")}}}}
	for _, input := range []*Transaction{known, listed} {
		err := tables.Write(short(), input)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the kernel is still busy") {
			t.Errorf("%q: %v", input.Text(), err)
		}
	}
	close(release)
	if err := tables.Write(t.Context(), listed); err != nil {
		t.Error(err)
	}
}
