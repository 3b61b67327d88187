package nf

import (
	"errors"
	"iter"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// nft runs nft(8) in the test's namespace.
func nft(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// open opens a connection.
func open(t *testing.T) *Conn {
	t.Helper()
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestKernelCutBatch sends only the first messages of a batch, for every number of them: without its end the kernel changes
// nothing, so that a process that is killed in the middle leaves whole transactions. The whole batch works afterwards.
func TestKernelCutBatch(t *testing.T) {
	netns.Enter(t, "nft")
	c := open(t)
	nft(t, "add table ip "+testTable+"; add set ip "+testTable+" ports { type inet_service; }; add element ip "+testTable+" ports { 30000 }")
	b := NewBatch(IPv4, testTable, 0)
	b.AddChain(Chain{Name: "cut"})
	b.Add("ports", &Element{Key: []byte{0x75, 0x31}})
	b.Delete("ports", []byte{0x75, 0x30})
	before := nft(t, "list", "ruleset")
	first := c.Reserve(b.messages + 1)
	data, last := b.finish(first)
	var ends []int
	for m := netlink.ReadMessages(data); m.Next(); {
		ends = append(ends, m.Offset)
	}
	if len(ends) < 5 {
		t.Fatalf("the batch has only %d messages", len(ends))
	}
	for _, end := range ends[1:] { // each is the offset of the first message that is not sent
		if _, _, err := c.exchangeBatch(data[:end], first, last); err != nil {
			t.Logf("%d of %d bytes: %v", end, len(data), err)
		}
		if after := nft(t, "list", "ruleset"); after != before {
			t.Fatalf("after %d of %d bytes of a batch:\n%s\nbefore:\n%s", end, len(data), after, before)
		}
	}
	t.Logf("%d messages: cut after each of the first %d", len(ends), len(ends)-1)
	if first, confirmed, err := c.exchangeBatch(data, first, last); err != nil || !confirmed || first.Errno != 0 {
		t.Fatalf("the whole batch: %v, %v, %v", first, confirmed, err)
	}
	if after := nft(t, "list", "ruleset"); after == before {
		t.Error("the whole batch changed nothing")
	}
}

// TestKernelOwnedTable adds an owned table, which ends with its connection.
func TestKernelOwnedTable(t *testing.T) {
	netns.Enter(t, "nft")
	owner, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(IPv4, testTable, 0)
	b.AddOwnedTable()
	want := Chain{Name: "hooked", Type: "filter", Hook: 1, Priority: -350, Drops: true, Comment: "made in a batch"}
	b.AddChain(want)
	if err := owner.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if chain, err := owner.Chain(IPv4, testTable, want.Name); err != nil || chain != want {
		t.Errorf("%+v, %v", chain, err)
	}
	var refused *Refusal
	if err := owner.Commit(t.Context(), b); !errors.As(err, &refused) || refused.Errno != unix.EEXIST || refused.Op != AddTable {
		t.Errorf("added twice: %v", err)
	}
	if err := open(t).Commit(t.Context(), b); !errors.Is(err, unix.EPERM) {
		t.Errorf("added by another connection: %v", err)
	}
	if err := owner.Close(); err != nil {
		t.Error(err)
	}
	if left := nft(t, "list", "tables"); left != "" {
		t.Errorf("after Close: %s", left)
	}
}

// TestKernelCatchAll reads, finds and deletes an element that stands for all other keys, which another program added. The size of
// its map does not include it.
func TestKernelCatchAll(t *testing.T) {
	netns.Enter(t, "nft")
	nft(t, "add table ip "+testTable+"; add map ip "+testTable+" services { type ipv4_addr : verdict; }; "+
		"add element ip "+testTable+" services { 10.96.0.1 : accept, * : drop }")
	conn, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(conn, IPv4, testTable)
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	all := 0
	for _, elements := range []iter.Seq2[Element, error]{
		table.Elements(t.Context(), "services"), table.Find(t.Context(), "services", slices.Values([][]byte{{}})),
	} {
		for e, err := range elements {
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Key) == 0 {
				all++
			}
		}
	}
	if all != 2 {
		t.Errorf("read and found %d times, want 2", all)
	}
	b := NewBatch(IPv4, testTable, table.Limit())
	b.Delete("services", nil)
	if err := table.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if left := nft(t, "list", "table", "ip", testTable); strings.Contains(left, "drop") || !strings.Contains(left, "10.96.0.1") {
		t.Errorf("after Delete:\n%s", left)
	}
}
