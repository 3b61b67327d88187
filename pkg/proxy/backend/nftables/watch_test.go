package nftables

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// oneFake is a backend on one fake table; two would each have a generation number, unlike the kernel's.
func oneFake() (*Backend, *nft.Fake) {
	table := nft.NewFake(knftables.IPv4Family, TableName)
	return New(testOptions, table), table
}

// firstKey is the key of some element of a set.
func firstKey(t *testing.T, table nft.Table, set string) []byte {
	t.Helper()
	for e, err := range table.Elements(context.Background(), set) {
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte(nil), e.Key...)
	}
	t.Fatalf("%s is empty", set)
	return nil
}

// TestCheckFindsTampering has a stranger change each kind of thing; Check tells, and the next Sync repairs.
func TestCheckFindsTampering(t *testing.T) {
	other := nft.Element{Key: []byte{10, 96, 0, 200}}
	for name, tamper := range map[string]func(*testing.T, *nft.Fake) error{
		"delete the table": func(_ *testing.T, f *nft.Fake) error { return f.Stranger().FlushRuleset() },
		"add a rule":       func(_ *testing.T, f *nft.Fake) error { return f.Stranger().AddRule("nat-prerouting", "accept") },
		"add an element":   func(_ *testing.T, f *nft.Fake) error { return f.Stranger().AddElement(setClusterIPs, &other) },
		"delete an endpoint": func(t *testing.T, f *nft.Fake) error {
			return f.Stranger().DeleteElement(mapEndpoints, firstKey(t, f, mapEndpoints))
		},
		"delete a service": func(t *testing.T, f *nft.Fake) error {
			return f.Stranger().DeleteElement(mapServices, firstKey(t, f, mapServices))
		},
		"unhook a chain": func(_ *testing.T, f *nft.Fake) error {
			tx := f.NewTransaction()
			tx.Flush(&knftables.Chain{Name: "nat-output"})
			tx.Delete(&knftables.Chain{Name: "nat-output"})
			return f.Stranger().Run(tx)
		},
		"empty a map": func(_ *testing.T, f *nft.Fake) error {
			tx := f.NewTransaction()
			tx.Flush(&knftables.Map{Name: mapEndpoints})
			return f.Stranger().Run(tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, table := oneFake()
			p := clusters.NewSized(5, 3).Plan()
			sync(t, b, p)
			if drifts, err := b.Check(context.Background()); err != nil || len(drifts) > 0 {
				t.Fatalf("untouched, but Check says %v, %v", drifts, err)
			}
			if err := tamper(t, table); err != nil {
				t.Fatal(err)
			}
			readAlike(t, table)
			drifts, err := b.Check(context.Background())
			if err != nil || len(drifts) != 1 {
				t.Fatalf("Check says %v, %v; want one drift", drifts, err)
			}
			sync(t, b, p)
			holds(t, b, p)
			if drifts, err := b.Check(context.Background()); err != nil || len(drifts) > 0 {
				t.Fatalf("repaired, but Check says %v, %v", drifts, err)
			}
		})
	}
}

// TestTamperingBetweenSyncs is noticed although a sync of our own came right after it.
func TestTamperingBetweenSyncs(t *testing.T) {
	b, table := oneFake()
	c := clusters.NewSized(5, 3)
	sync(t, b, c.Plan())
	if err := table.Stranger().DeleteElement(mapServices, firstKey(t, table, mapServices)); err != nil {
		t.Fatal(err)
	}
	c.Set(4, -3)
	sync(t, b, c.Plan())
	if drifts, err := b.Check(context.Background()); err != nil || len(drifts) != 1 {
		t.Fatalf("Check says %v, %v; want one drift", drifts, err)
	}
}

// TestOthersTables does not take a change of somebody else's table for one of ours.
func TestOthersTables(t *testing.T) {
	b, table := oneFake()
	sync(t, b, clusters.NewSized(5, 3).Plan())
	table.Stranger().Elsewhere()
	if drifts, err := b.Check(context.Background()); err != nil || len(drifts) > 0 {
		t.Fatalf("Check says %v, %v; want nothing", drifts, err)
	}
}

// TestOthersTablesAfterRestart is the same for a process that found everything as it should be.
func TestOthersTablesAfterRestart(t *testing.T) {
	b, table := oneFake()
	p := clusters.NewSized(5, 3).Plan()
	sync(t, b, p)
	b = New(testOptions, table)
	sync(t, b, p)
	table.Stranger().Elsewhere()
	if drifts, err := b.Check(context.Background()); err != nil || len(drifts) > 0 {
		t.Fatalf("Check says %v, %v; want nothing", drifts, err)
	}
}

// TestTakeOver starts on a table in which another program of our name left chains, sets and elements.
func TestTakeOver(t *testing.T) {
	b, table := oneFake()
	tx := table.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Add(&knftables.Chain{Name: "service-ABCD-ns/web"})
	tx.Add(&knftables.Map{Name: "service-ips", Type: "ipv4_addr . inet_proto . inet_service : verdict"})
	tx.Add(&knftables.Element{Map: "service-ips", Key: []string{"10.96.0.1", "tcp", "80"}, Value: []string{"goto service-ABCD-ns/web"}})
	tx.Add(&knftables.Chain{Name: "nat-prerouting", Type: knftables.PtrTo(knftables.NATType), Hook: knftables.PtrTo(knftables.PreroutingHook), Priority: knftables.PtrTo(knftables.BaseChainPriority("-50"))})
	tx.Add(&knftables.Rule{Chain: "nat-prerouting", Rule: "ip daddr . meta l4proto . th dport vmap @service-ips"})
	tx.Add(&knftables.Chain{Name: "filter-prerouting-pre-dnat", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.PreroutingHook), Priority: knftables.PtrTo(knftables.BaseChainPriority("-110"))})
	tx.Add(&knftables.Rule{Chain: "filter-prerouting-pre-dnat", Rule: "ip saddr 1.2.3.4 drop"})
	if err := table.Run(context.Background(), tx); err != nil {
		t.Fatal(err)
	}
	p := clusters.NewSized(5, 3).Plan()
	sync(t, b, p)
	holds(t, b, p)
	if text := table.Dump(); strings.Contains(text, "service-ips") || strings.Contains(text, "1.2.3.4") || strings.Contains(text, "priority -50") {
		t.Errorf("something of the other program is left:\n%s", text)
	}
}
