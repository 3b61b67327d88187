package nft_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
)

func loadedFake(t *testing.T) *nfttest.Fake {
	t.Helper()
	fake := nfttest.New(nf.IPv4, testTable)
	mustRun(t, fake, text(world))
	mustRun(t, fake, batch(elements))
	return fake
}

// TestFakeDump is the golden of a dump.
func TestFakeDump(t *testing.T) {
	fake := loadedFake(t)
	fake.Count("services", frontendKey(1), 2, 120)
	mustRun(t, fake, text(func(tx *nft.Transaction) {
		tx.Add(&knftables.Element{Set: "pods", Key: []string{"10.0.0.0/8"}})
		tx.Add(&knftables.Element{Map: "services", Key: []string{"10.96.0.2", "udp", "53"}, Value: []string{"drop"}, Comment: new("kube-system/dns")})
	}))
	const want = `table ip kube-proxy {
		comment "rules for kube-proxy"
	counter counted {
		packets 0 bytes 0
	}
	counter unused-counter {
		packets 0 bytes 0
	}
	map clients {
		typeof ip saddr : ip daddr . th dport; flags dynamic,timeout; size 2
		10.0.0.1 : 10.0.0.1 . 8080
	}
	map endpoints {
		typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport; counter
		10.96.0.1 . tcp . 80 . 0 : 10.0.0.1 . 8080
		10.96.0.1 . tcp . 80 . 1 comment "default/a-2" : 10.0.0.2 . 8080
	}
	set full {
		type ipv4_addr; size 1
		10.0.0.1
	}
	set nodeports {
		type inet_service
		30000
	}
	set pods {
		type ipv4_addr; flags interval
		10.0.0.0/8
	}
	map services {
		typeof ip daddr . meta l4proto . th dport : verdict; counter
		10.96.0.1 . tcp . 80 counter packets 2 bytes 120 comment "default/a:http" : goto pick-2
		10.96.0.2 . udp . 53 comment "kube-system/dns" : drop
	}
	map typed {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
	}
	map unused-map {
		typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport
	}
	set unused-set {
		type ipv4_addr
	}
	chain pick-2 {
		dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints
	}
	chain prerouting {
		type nat hook prerouting priority -100; policy accept;
		jump services comment "the way in"
	}
	chain services {
		comment "where a packet goes"
		ip daddr . meta l4proto . th dport vmap @services
	}
	chain unused {
		ip saddr @unused-set drop
		counter name counted
	}
}
`
	if diff := gocmp.Diff(want, fake.Dump()); diff != "" {
		t.Error(diff)
	}
	if dump := nfttest.New(nf.IPv4, testTable).Dump(); dump != "" {
		t.Errorf("a table that is not there is dumped as %q", dump)
	}
}

// TestFakeIsAtomic makes each write fail at its last operation: the dump, the use counts and the generation must not
// change.
func TestFakeIsAtomic(t *testing.T) {
	fake := loadedFake(t)
	before := fake.Dump()
	generation, _ := fake.Generation()
	for _, s := range []step{
		batch(func(b *nf.Batch) {
			b.AddChain(nf.Chain{Name: "new"})
			nft.AddRule(b, "new", nft.Rule{nft.Goto("pick-2")})
			b.FlushChain("prerouting")
			b.DeleteChain("unused")
			b.Delete("services", frontendKey(1))
			b.Add("services", &nf.Element{Key: frontendKey(1), Chain: "new"})
			b.Delete("endpoints", slotKey(1, 0))
			b.Delete("endpoints", slotKey(1, 0))
		}),
		text(func(tx *nft.Transaction) {
			tx.Flush(&knftables.Map{Name: "services"})
			tx.Delete(&knftables.Chain{Name: "pick-2"})
			tx.Delete(&knftables.Table{})
			tx.Add(&knftables.Table{})
			tx.Add(&knftables.Chain{Name: "pick-2"})
			tx.Do((*knftables.Transaction).Create, &knftables.Chain{Name: "pick-2"})
		}),
	} {
		if err := s.run(t.Context(), fake); err == nil {
			t.Fatal("no error")
		}
		if diff := gocmp.Diff(before, fake.Dump()); diff != "" {
			t.Error(diff)
		}
	}
	if after, _ := fake.Generation(); after != generation {
		t.Errorf("the generation went from %d to %d", generation, after)
	}
	// Use counts are right: one element uses the chain.
	err := batch(func(b *nf.Batch) { b.DeleteChain("pick-2") }).run(t.Context(), fake)
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("delete a chain in use: %v", err)
	}
	mustRun(t, fake, batch(func(b *nf.Batch) {
		b.Delete("services", frontendKey(1))
		b.DeleteChain("pick-2")
	}))
}

// TestFakeFails checks the failures that a test requests.
func TestFakeFails(t *testing.T) {
	write := batch(func(b *nf.Batch) {
		b.Delete("nodeports", []byte{0x75, 0x30})
		b.Add("nodeports", &nf.Element{Key: []byte{0x75, 0x30}})
	})
	run := func(f *nfttest.Fake, n int) (failed []int) {
		for i := range n {
			if err := write.run(t.Context(), f); errors.Is(err, nfttest.ErrInjected) {
				failed = append(failed, i+1)
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return failed
	}
	var failed [2][]int
	for i := range failed {
		fake := loadedFake(t)
		fake.FailRandomly(0.1, 42)
		failed[i] = run(fake, 200)
	}
	if n := len(failed[0]); n < 5 || n > 50 || gocmp.Diff(failed[0], failed[1]) != "" {
		t.Errorf("with the same seed writes %v and %v of 200 failed", failed[0], failed[1])
	}
}

// TestFakeExternal checks changes by another process.
func TestFakeExternal(t *testing.T) {
	for name, c := range map[string]struct {
		do          func(*nfttest.External) error
		fingerprint bool // moves
		content     bool // changes
	}{
		"elsewhere":      {do: func(e *nfttest.External) error { e.Elsewhere(); return nil }},
		"delete element": {do: func(e *nfttest.External) error { return e.DeleteElement("services", frontendKey(1)) }, content: true},
		"add element": {do: func(e *nfttest.External) error {
			return e.AddElement("services", &nf.Element{Key: frontendKey(2), Chain: "pick-2"})
		}, content: true},
		"add rule":      {do: func(e *nfttest.External) error { return e.AddRule("services", "drop") }, fingerprint: true, content: true},
		"flush ruleset": {do: func(e *nfttest.External) error { return e.FlushRuleset() }, fingerprint: true, content: true},
	} {
		t.Run(name, func(t *testing.T) {
			fake := loadedFake(t)
			fake.FailRandomly(1, 1) // external writes do not fail
			ctx := context.Background()
			g1, _ := fake.Generation()
			p1, _, _ := fake.Fingerprint(ctx, "")
			d1 := fake.Dump()
			if err := c.do(fake.External()); err != nil {
				t.Fatal(err)
			}
			g2, _ := fake.Generation()
			p2, _, _ := fake.Fingerprint(ctx, "")
			if g2.Since(g1) != 1 {
				t.Errorf("the generation moved by %d", g2.Since(g1))
			}
			if (p1 != p2) != c.fingerprint {
				t.Errorf("the fingerprint moved: %v, want %v", p1 != p2, c.fingerprint)
			}
			if changed := d1 != fake.Dump(); changed != c.content {
				t.Errorf("the content changed: %v, want %v", changed, c.content)
			}
		})
	}
}

// TestFakeDoesNotUnderstand checks that the fake says so rather than guess.
func TestFakeDoesNotUnderstand(t *testing.T) {
	for name, f := range map[string]func(tx *nft.Transaction){
		"destroy": func(tx *nft.Transaction) { tx.Do((*knftables.Transaction).Destroy, &knftables.Chain{Name: "x"}) },
		"handle":  func(tx *nft.Transaction) { tx.Delete(&knftables.Chain{Handle: new(1)}) },
		"rule by handle": func(tx *nft.Transaction) {
			tx.Delete(&knftables.Rule{Chain: "services", Handle: new(1)})
		},
		"replace": func(tx *nft.Transaction) {
			tx.Do((*knftables.Transaction).Replace, &knftables.Rule{Chain: "services", Rule: "drop", Handle: new(1)})
		},
		"flow table":      func(tx *nft.Transaction) { tx.Add(&knftables.Flowtable{Name: "x"}) },
		"unknown type":    func(tx *nft.Transaction) { tx.Add(&knftables.Set{Name: "x", Type: "ether_addr"}) },
		"invalid":         func(tx *nft.Transaction) { tx.Add(&knftables.Chain{}) },
		"malformed key":   func(tx *nft.Transaction) { tx.Add(&knftables.Element{Set: "nodeports", Key: []string{"ssh"}}) },
		"unknown counter": func(tx *nft.Transaction) { tx.Do((*knftables.Transaction).Reset, &knftables.Counter{Name: "x"}) },
	} {
		t.Run(name, func(t *testing.T) {
			fake := loadedFake(t)
			before := fake.Dump()
			err := text(f).run(t.Context(), fake)
			if err == nil || !strings.HasPrefix(err.Error(), "nftables: run a transaction (table ip kube-proxy): ") {
				t.Errorf("error %v", err)
			}
			if diff := gocmp.Diff(before, fake.Dump()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
