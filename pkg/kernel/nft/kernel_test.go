package nft_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
)

// loaded loads the world into the kernel's table.
func loaded(t *testing.T) *nft.KernelTable {
	t.Helper()
	table := openKernel(t, nf.IPv4)
	for _, s := range []step{text(world), batch(elements)} {
		if err := s.run(t.Context(), table); err != nil {
			t.Fatal(err)
		}
	}
	return table
}

func mustRun(t *testing.T, table nft.Table, s step) {
	t.Helper()
	if err := s.run(t.Context(), table); err != nil {
		t.Fatal(err)
	}
}

// TestKernelListing compares nft's listing of elements that nft wrote with that of elements that a batch wrote.
func TestKernelListing(t *testing.T) {
	long := strings.Repeat("é", 70)
	var lists []string
	for _, s := range []step{
		text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Element{Map: "endpoints", Key: []string{"10.96.0.1", "tcp", "80", "1"}, Value: []string{"10.0.0.1", "8080"}, Comment: new("default/a-1")})
			tx.Add(&knftables.Element{Map: "services", Key: []string{"10.96.0.1", "tcp", "80"}, Value: []string{"goto pick-2"}, Comment: new(strings.Repeat("é", 63))})
			tx.Add(&knftables.Element{Set: "nodeports", Key: []string{"30000"}})
		}),
		batch(func(b *nf.Batch) {
			b.Add("endpoints", &nf.Element{Key: slotKey(1, 1), Value: endpointValue(1), Comment: "default/a-1"})
			b.Add("services", &nf.Element{Key: frontendKey(1), Chain: "pick-2", Comment: long})
			b.Add("nodeports", &nf.Element{Key: []byte{0x75, 0x30}})
		}),
	} {
		t.Run("", func(t *testing.T) {
			table := openKernel(t, nf.IPv4)
			mustRun(t, table, text(world))
			mustRun(t, table, s)
			lists = append(lists, nftProgram(t, "list", "ruleset"))
		})
	}
	if len(lists) == 2 && lists[0] != lists[1] {
		t.Errorf("written by nft:\n%s\nwritten by a batch:\n%s", lists[0], lists[1])
	}
	for _, want := range []string{
		`10.96.0.1 . tcp . 80 . 1 counter packets 0 bytes 0 comment "default/a-1" : 10.0.0.1 . 8080`,
		`comment "` + strings.Repeat("é", 63) + `" : goto pick-2`,
	} {
		if len(lists) == 2 && !strings.Contains(lists[1], want) {
			t.Errorf("the listing lacks %q:\n%s", want, lists[1])
		}
	}
}

// TestKernelManyElements writes, reads, finds and deletes more than fits into one message or one read.
func TestKernelManyElements(t *testing.T) {
	table := loaded(t)
	const n = 20_000
	b := table.NewBatch()
	for i := range n {
		b.Add("endpoints", &nf.Element{Key: slotKey(100+i, 0), Value: endpointValue(i), Comment: fmt.Sprint("default/endpoint-", i)})
	}
	if err := table.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if o, err := table.Objects(t.Context()); err != nil || o.Sets[0].Count != n+2 && o.Sets[0].Count != -1 {
		t.Errorf("%+v, %v: want %d elements", o.Sets[0], err, n+2)
	}
	seen := map[string]bool{}
	for e, err := range table.Elements(t.Context(), "endpoints") {
		if err != nil {
			t.Fatal(err)
		}
		seen[string(e.Key)+string(e.Value)+e.Comment] = true
	}
	if len(seen) != n+2 {
		t.Errorf("read %d elements, want %d", len(seen), n+2)
	}
	// Every seventh key does not exist.
	var want, got []string
	keys := func(yield func([]byte) bool) {
		for i := range n {
			key := slotKey(100+i, 0)
			if i%7 == 0 {
				key = slotKey(100+i, 3)
			} else {
				want = append(want, string(key))
			}
			if !yield(key) {
				return
			}
		}
	}
	for e, err := range table.Find(t.Context(), "endpoints", keys) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Key))
	}
	if !slices.Equal(want, got) {
		t.Errorf("found %d elements, want %d", len(got), len(want))
	}
	b.Reset()
	for i := range n {
		b.Delete("endpoints", slotKey(100+i, 0))
	}
	if err := table.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// TestKernelBlame puts a fault at different places of a batch of several messages: the error must name the set, and the kernel must
// hold nothing of the batch.
func TestKernelBlame(t *testing.T) {
	table := loaded(t)
	const n = 3500
	before, _, err := table.Fingerprint(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 1, 1361, 1362, 1363, 2800, n - 1} {
		b := table.NewBatch()
		for i := range n {
			key := slotKey(100+i, 0)
			if i == at {
				key = slotKey(1, 1)
			}
			b.Add("endpoints", &nf.Element{Key: key, Value: endpointValue(i)})
		}
		b.Add("services", &nf.Element{Key: frontendKey(2), Chain: "none"}) // a second fault, later
		var got *nf.Refusal
		if err := table.Commit(t.Context(), b); !errors.As(err, &got) {
			t.Fatal(err)
		}
		if got.Op != "add an element to set endpoints" || got.Errno != unix.EEXIST {
			t.Errorf("for the fault at %d got %+v", at, got)
		}
	}
	if o, err := table.Objects(t.Context()); err != nil || o.Sets[0].Count > 2 {
		t.Errorf("after batches that failed: %+v, %v", o.Sets, err)
	}
	if after, _, err := table.Fingerprint(t.Context(), ""); err != nil || before != after {
		t.Errorf("the fingerprint went from %s to %s, %v", before, after, err)
	}
}

// TestKernelErrorsAdvise checks the text of errors.
func TestKernelErrorsAdvise(t *testing.T) {
	for name, table := range map[string]func(t *testing.T) nft.Table{
		"kernel": func(t *testing.T) nft.Table { return loaded(t) },
		"fake": func(t *testing.T) nft.Table {
			fake := nfttest.New(nf.IPv4, testTable)
			mustRun(t, fake, text(world))
			mustRun(t, fake, batch(elements))
			return fake
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := table(t)
			err := batch(func(b *nf.Batch) { b.Add("services", &nf.Element{Key: frontendKey(2), Chain: "pick-9"}) }).run(t.Context(), table)
			for _, want := range []string{
				"nftables: commit a batch (table ip kube-proxy): add an element to set services: no such file or directory",
				"The next sync restores it",
			} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			err = text(func(tx *nft.Transaction) { tx.Delete(&knftables.Chain{Name: "pick-2"}) }).run(t.Context(), table)
			if want := "nftables: run a transaction (table ip kube-proxy): "; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v\ndoes not begin with %q", err, want)
			}
		})
	}
}

// TestKernelNoPrivilege drops CAP_NET_ADMIN on this thread.
func TestKernelNoPrivilege(t *testing.T) {
	table := loaded(t)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	caps[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	// With a context that cannot end, the request is sent on this thread.
	ctx := context.Background()
	b := table.NewBatch()
	elements(b)
	err := table.Commit(ctx, b)
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("Commit: %v", err)
	}
	if _, err := table.Objects(ctx); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("Objects: %v", err)
	}
}

// TestKernelFingerprint checks which changes change a fingerprint.
func TestKernelFingerprint(t *testing.T) {
	table := loaded(t)
	digest := func() (string, map[string]string) {
		t.Helper()
		p, objects, err := table.Fingerprint(t.Context(), "unused")
		if err != nil || p == "" {
			t.Fatalf("%q, %v", p, err)
		}
		return p, objects
	}
	first, objects := digest()
	guard := func(rule string) step {
		return text(func(tx *nft.Transaction) { tx.Add(&knftables.Rule{Chain: "services", Rule: rule}) })
	}
	for name, c := range map[string]struct {
		do step
		// moves is the object whose digest moves, and with it the fingerprint; empty is none.
		moves string
	}{
		"an element":         {batch(func(b *nf.Batch) { b.Add("endpoints", &nf.Element{Key: slotKey(9, 9), Value: endpointValue(9)}) }), ""},
		"the chain left out": {text(func(tx *nft.Transaction) { tx.Add(&knftables.Rule{Chain: "unused", Rule: "counter"}) }), ""},
		"a rule":             {guard("ip saddr 10.0.0.1 drop"), "chain services"},
		"an anonymous set":   {guard("meta l4proto { tcp, udp } drop"), "chain services"},
		"another one":        {guard("meta l4proto { tcp, sctp } drop"), "chain services"},
		"a rule's comment": {text(func(tx *nft.Transaction) {
			tx.Add(&knftables.Rule{Chain: "services", Rule: "accept", Comment: new("x")})
		}), "chain services"},
		"a chain":   {text(func(tx *nft.Transaction) { tx.Add(&knftables.Chain{Name: "new"}) }), "chain new"},
		"a set":     {text(func(tx *nft.Transaction) { tx.Add(&knftables.Set{Name: "new", Type: "ipv4_addr"}) }), "set new"},
		"a counter": {text(func(tx *nft.Transaction) { tx.Add(&knftables.Counter{Name: "new"}) }), "object new"},
		"a chain less": {text(func(tx *nft.Transaction) {
			tx.Flush(&knftables.Chain{Name: "prerouting"})
			tx.Delete(&knftables.Chain{Name: "prerouting"})
		}), "chain prerouting"},
	} {
		t.Run(name, func(t *testing.T) {
			table = loaded(t)
			if got, _ := digest(); got != first {
				t.Fatalf("the same table has the fingerprint %s in one namespace and %s in another", first, got)
			}
			mustRun(t, table, c.do)
			got, now := digest()
			moved := ""
			for name := range now {
				if objects[name] != now[name] {
					moved += name
				}
			}
			for name := range objects {
				if _, there := now[name]; !there {
					moved += name
				}
			}
			if moved != c.moves || (got != first) != (moved != "") {
				t.Errorf("moved %q, want %q; the fingerprint: %v", moved, c.moves, got != first)
			}
		})
	}
}

// TestKernelFingerprintIgnoresHistory checks that handles, the numbers of anonymous sets, and counters do not matter.
func TestKernelFingerprintIgnoresHistory(t *testing.T) {
	rules := []string{"meta l4proto { tcp, udp } counter accept", "ip saddr { 10.0.0.1, 10.0.0.2 } counter drop"}
	var prints []string
	for _, detour := range []bool{false, true} {
		t.Run("", func(t *testing.T) {
			table := loaded(t)
			mustRun(t, table, text(func(tx *nft.Transaction) {
				if detour {
					tx.Add(&knftables.Chain{Name: "detour"})
					tx.Add(&knftables.Rule{Chain: "detour", Rule: rules[1]})
				}
				for _, r := range rules {
					if detour {
						r = strings.Replace(r, "counter", "counter packets 7 bytes 500", 1)
					}
					tx.Add(&knftables.Rule{Chain: "services", Rule: r})
				}
			}))
			if detour {
				mustRun(t, table, text(func(tx *nft.Transaction) { tx.Delete(&knftables.Chain{Name: "detour"}) }))
			}
			p, _, err := table.Fingerprint(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			prints = append(prints, p)
		})
	}
	if len(prints) == 2 && prints[0] != prints[1] {
		t.Errorf("straight: %s, with a detour: %s", prints[0], prints[1])
	}
}

// TestKernelGenerationOfOthers checks that a transaction of another process increments the generation.
func TestKernelGenerationOfOthers(t *testing.T) {
	table := loaded(t)
	before, err := table.Generation()
	if err != nil {
		t.Fatal(err)
	}
	nftProgram(t, "add", "table", "inet", "other")
	mustRun(t, table, batch(func(b *nf.Batch) { b.Delete("services", frontendKey(1)) }))
	after, err := table.Generation()
	if err != nil || after.Since(before) != 2 {
		t.Errorf("the generation went from %d to %d, %v; want 2 transactions", before, after, err)
	}
}

// TestKernelNoTable checks what the methods return if there is no table.
func TestKernelNoTable(t *testing.T) {
	table := openKernel(t, nf.IPv6)
	for _, table := range []nft.Table{table, nfttest.New(nf.IPv6, testTable)} {
		if o, err := table.Objects(t.Context()); err != nil || o.Exists || o.Chains != nil || o.Sets != nil {
			t.Errorf("%T: Objects: %+v, %v", table, o, err)
		}
		if p, _, err := table.Fingerprint(t.Context(), ""); p != "" || err != nil {
			t.Errorf("%T: Fingerprint: %q, %v", table, p, err)
		}
		if c, err := table.Counters(t.Context()); len(c) > 0 || err != nil {
			t.Errorf("%T: Counters: %+v, %v", table, c, err)
		}
		none := iter.Seq[[]byte](func(func([]byte) bool) {})
		for name, elements := range map[string]iter.Seq2[nf.Element, error]{
			"Elements": table.Elements(t.Context(), "services"), "Find": table.Find(t.Context(), "services", none),
			"Find a key": table.Find(t.Context(), "services", slices.Values([][]byte{frontendKey(1)})),
		} {
			n := 0
			for _, err := range elements {
				if n++; !errors.Is(err, unix.ENOENT) {
					t.Errorf("%T: %s: %v", table, name, err)
				}
			}
			if n != 1 {
				t.Errorf("%T: %s yielded %d times", table, name, n)
			}
		}
		err := batch(func(b *nf.Batch) { b.Add("services", &nf.Element{Key: frontendKey(1), Chain: "x"}) }).run(t.Context(), table)
		if !errors.Is(err, unix.ENOENT) {
			t.Errorf("%T: Commit: %v", table, err)
		}
	}
}

// TestKernelClosedAndCancelled checks that a closed table and an ended context give errors and do not hang.
func TestKernelClosedAndCancelled(t *testing.T) {
	kernel := openKernel(t, nf.IPv4)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, table := range []nft.Table{kernel, nfttest.New(nf.IPv4, testTable)} {
		check := func(ctx context.Context, want error) {
			t.Helper()
			_, objectsErr := table.Objects(ctx)
			_, _, printErr := table.Fingerprint(ctx, "")
			errs := []error{objectsErr, printErr, batch(elements).run(ctx, table)}
			for _, err := range table.Elements(ctx, "services") {
				errs = append(errs, err)
			}
			for i, err := range errs {
				if !errors.Is(err, want) {
					t.Errorf("%T: method %d: error %v, want %v", table, i, err, want)
				}
			}
		}
		check(ended, context.Canceled)
		if err := errors.Join(table.Close(), table.Close()); err != nil {
			t.Errorf("%T: Close: %v", table, err)
		}
		check(t.Context(), nf.ErrClosed)
	}
}

// TestKernelCountersCount sends packets through a map with counters, and reads them.
func TestKernelCountersCount(t *testing.T) {
	table := openKernel(t, nf.IPv4)
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("ip link set lo up: %v: %s", err, out)
	}
	mustRun(t, table, text(func(tx *nft.Transaction) {
		tx.Add(&knftables.Table{})
		tx.Add(&knftables.Map{Name: "services", TypeOf: servicesType + " ; counter"})
		tx.Add(&knftables.Counter{Name: "sent"})
		tx.Add(&knftables.Chain{Name: "found"})
		tx.Add(&knftables.Rule{Chain: "found", Rule: "counter name sent"})
		tx.Add(&knftables.Chain{Name: "output", Type: knftables.PtrTo(knftables.FilterType),
			Hook: knftables.PtrTo(knftables.OutputHook), Priority: knftables.PtrTo(knftables.FilterPriority)})
		tx.Add(&knftables.Rule{Chain: "output", Rule: "ip daddr . meta l4proto . th dport vmap @services"})
	}))
	key := []byte{127, 0, 0, 1, unix.IPPROTO_UDP, 0, 0, 0, 0x75, 0x30, 0, 0}
	mustRun(t, table, batch(func(b *nf.Batch) { b.Add("services", &nf.Element{Key: key, Chain: "found"}) }))
	// On this thread, which is in this namespace.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 3 {
		if err := unix.Sendto(fd, make([]byte, 72), 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 30000}); err != nil && err != unix.ECONNREFUSED {
			t.Fatal(err)
		}
	}
	for e, err := range table.Elements(t.Context(), "services") {
		if err != nil || e.Packets != 3 || e.Bytes != 300 {
			t.Errorf("%+v, %v: want 3 packets of 100 bytes", e, err)
		}
	}
	if named, err := table.Counters(t.Context()); err != nil || !slices.Equal(named, []nf.Counter{{Name: "sent", Packets: 3, Bytes: 300}}) {
		t.Errorf("named counters: %+v, %v: want 3 packets of 100 bytes", named, err)
	}
}
