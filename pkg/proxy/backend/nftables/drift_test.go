package nftables

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

// oneFake returns a backend on one fake table.
func oneFake() (*Backend, *nfttest.Fake) {
	table := nfttest.New(nf.IPv4, TableName)
	return newBackend(testOptions, table), table
}

// firstKey returns the key of an arbitrary element of a set.
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

// lastKey returns the greatest key of a set.
func lastKey(t *testing.T, table nft.Table, set string) (last []byte) {
	t.Helper()
	for e, err := range table.Elements(context.Background(), set) {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Compare(e.Key, last) > 0 {
			last = bytes.Clone(e.Key)
		}
	}
	return last
}

// TestReadingFails checks that what could not be read is read again.
func TestReadingFails(t *testing.T) {
	for name, lost := range map[string]bool{"which elements were written is known": false, "it is not": true} {
		t.Run(name, func(t *testing.T) {
			table, noMemory := newHooked(), errors.New("no memory")
			b, p := newBackend(testOptions, table), clusters.NewSized(6000, 3).Plan()
			defer b.Close()
			mustSync(t, b, p)
			if err := replaceEndpoint(table.Fake, lastKey(t, table, mapEndpoints)); err != nil {
				t.Fatal(err)
			}
			if lost {
				lose(b)
			}
			table.around = func(operation string, do func() error) error {
				if operation == "Elements" || operation == "Find" {
					return noMemory
				}
				return do()
			}
			var failed error
			for range 2 {
				awaitAudit(t, b)
				_, err := b.Check(t.Context())
				failed = errors.Join(failed, err)
			}
			if !errors.Is(failed, noMemory) {
				t.Errorf("Check returned %v", failed)
			}
			awaitAudit(t, b)
			table.around = nil
			if drifts, _ := untilRested(t, b, func() {}); len(drifts) != 1 {
				t.Errorf("found %v, want the replaced endpoint", drifts)
			}
		})
	}
}

// slotKey returns the key of a slot of a cluster IP.
func slotKey(b *Backend, frontend plan.Frontend, slot uint32) []byte {
	return b.families[0].schema.named(mapEndpoints).encode(&element{frontend: frontend, slot: slot}, new(buffer)).Key
}

// replaceEndpoint replaces the endpoint of a slot externally.
func replaceEndpoint(f *nfttest.Fake, key []byte) error {
	elsewhere := nf.Element{Key: key, Value: []byte{192, 0, 2, 1, 0, 80, 0, 0}}
	return errors.Join(f.External().DeleteElement(mapEndpoints, key), f.External().AddElement(mapEndpoints, &elsewhere))
}

// TestCheckFindsTampering changes each kind of object externally.
func TestCheckFindsTampering(t *testing.T) {
	other := nf.Element{Key: []byte{10, 96, 0, 200}}
	ways := map[string]func(*testing.T, *nfttest.Fake) error{
		"delete the table": func(_ *testing.T, f *nfttest.Fake) error { return f.External().FlushRuleset() },
		"add a rule":       func(_ *testing.T, f *nfttest.Fake) error { return f.External().AddRule("nat-prerouting", "accept") },
		"add an element":   func(_ *testing.T, f *nfttest.Fake) error { return f.External().AddElement(setClusterIPs, &other) },
		"delete an endpoint": func(t *testing.T, f *nfttest.Fake) error {
			return f.External().DeleteElement(mapEndpoints, firstKey(t, f, mapEndpoints))
		},
		"replace an endpoint": func(t *testing.T, f *nfttest.Fake) error {
			return replaceEndpoint(f, firstKey(t, f, mapEndpoints))
		},
		"replace a cluster IP": func(t *testing.T, f *nfttest.Fake) error {
			return errors.Join(f.External().DeleteElement(setClusterIPs, firstKey(t, f, setClusterIPs)), f.External().AddElement(setClusterIPs, &other))
		},
		"replace the last cluster IP": func(t *testing.T, f *nfttest.Fake) error {
			return errors.Join(f.External().DeleteElement(setClusterIPs, lastKey(t, f, setClusterIPs)), f.External().AddElement(setClusterIPs, &other))
		},
		"lead a service elsewhere": func(t *testing.T, f *nfttest.Fake) error {
			elsewhere := nf.Element{Key: firstKey(t, f, mapServices), Chain: chainLayout}
			return errors.Join(f.External().DeleteElement(mapServices, elsewhere.Key), f.External().AddElement(mapServices, &elsewhere))
		},
		"delete a service": func(t *testing.T, f *nfttest.Fake) error {
			return f.External().DeleteElement(mapServices, firstKey(t, f, mapServices))
		},
		"unhook a chain": func(_ *testing.T, f *nfttest.Fake) error {
			tx := f.NewTransaction()
			tx.Flush(&knftables.Chain{Name: "nat-output"})
			tx.Delete(&knftables.Chain{Name: "nat-output"})
			return f.External().Run(tx)
		},
		"drop by policy": func(_ *testing.T, f *nfttest.Fake) error {
			tx := f.NewTransaction()
			tx.Add(&knftables.Chain{Name: "filter-forward", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.ForwardHook),
				Priority: knftables.PtrTo(knftables.FilterPriority), Policy: knftables.PtrTo(knftables.DropPolicy)})
			return f.External().Run(tx)
		},
		"empty a map": func(_ *testing.T, f *nfttest.Fake) error {
			tx := f.NewTransaction()
			tx.Flush(&knftables.Map{Name: mapEndpoints})
			return f.External().Run(tx)
		},
	}
	for name, tamper := range ways {
		ways[name] = func(t *testing.T, f *nfttest.Fake) error {
			err := tamper(t, f)
			readAlike(t, newFamily(testOptions, f))
			return err
		}
	}
	laws.FindsTampering(t, lawAndFake, true, ways)
}

// TestTamperingDuringSync has another program change a chain after it was written, before its fingerprint is taken: it is
// written again until nobody does, and a process that starts meanwhile does not trust it either. A program that changes only
// its own tables, all the time, causes no other Sync.
func TestTamperingDuringSync(t *testing.T) {
	ours := func(times int) func(t *testing.T, f *nfttest.Fake, time int) {
		return func(t *testing.T, f *nfttest.Fake, time int) {
			if time >= times {
				return
			}
			if err := f.External().AddRule("nat-prerouting", "accept"); err != nil {
				t.Error(err)
			}
		}
	}
	for name, test := range map[string]struct {
		meddle  func(t *testing.T, f *nfttest.Fake, time int)
		restart bool
		syncs   int
	}{
		"our chain, once":              {ours(1), false, 1},
		"our chain, five times":        {ours(5), false, 3},
		"our chain, and a new process": {ours(1), true, 1},
		"its own table, always":        {func(_ *testing.T, f *nfttest.Fake, _ int) { f.External().Elsewhere() }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			times, table := 0, newHooked()
			table.before("Fingerprint", func() error {
				if table.Stats().Writes > 1 { // not while it is read at first
					test.meddle(t, table.Fake, times)
					times++
				}
				return nil
			})
			b, c := newBackend(testOptions, table), clusters.NewSized(5, 3)
			result := b.Sync(t.Context(), c.Plan())[0]
			syncs := 0
			for ; result.Again > 0 && syncs < 5; syncs++ {
				if test.restart {
					b = newBackend(testOptions, table)
				}
				result = b.Sync(t.Context(), c.Plan())[0]
			}
			if result.Err != nil || syncs != test.syncs {
				t.Errorf("%d more syncs, the last with error %v; want %d", syncs, result.Err, test.syncs)
			}
			table.around = nil
			holds(t, b, c.Plan())
			if strings.Contains(table.Dump(), "\n\t\taccept\n") {
				t.Errorf("the change remains:\n%s", table.Dump())
			}
		})
	}
}

// awaitAudit waits until no elements are read in another goroutine.
func awaitAudit(t *testing.T, b *Backend) {
	t.Helper()
	for _, f := range b.families {
		for deadline := time.Now().Add(time.Minute); f.audit != nil && !f.audit.ended.Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("an audit does not end")
			}
		}
	}
}

// untilRested calls Check until the backend asks for no more, with sync in between, and returns the drifts and the number of
// calls.
func untilRested(t *testing.T, b *Backend, sync func()) (drifts []backend.Drift, checks int) {
	t.Helper()
	for asked := true; asked; checks++ {
		select { // what sync asks for
		case <-b.Modified():
		default:
		}
		found, err := b.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		drifts = append(drifts, found...)
		asked = slices.ContainsFunc(b.families, func(f *family) bool { return f.audit != nil })
		select {
		case <-b.Modified():
			asked = true
		default:
		}
		sync()
		awaitAudit(t, b)
	}
	return drifts, checks
}

// TestSyncsAmidAudit reads all elements, because notifications were lost, while the cluster changes: our own syncs are not
// reported, and an external change is, of an element that they write and of one that they do not.
func TestSyncsAmidAudit(t *testing.T) {
	b, table := oneFake()
	defer b.Close()
	c := clusters.NewSized(6000, 3)
	mustSync(t, b, c.Plan())
	turn := 0
	change := func() {
		turn++
		c.Set(turn*37%2000, 1+turn%4)
		mustSync(t, b, c.Plan())
	}
	lose(b)
	if drifts, checks := untilRested(t, b, change); len(drifts) > 0 || checks < 2 {
		t.Errorf("after %d checks: %v; want no drift after more than one check", checks, drifts)
	}
	var first, last plan.Frontend
	for frontend := range b.families[0].have.holds.frontends.All() {
		if last = frontend; !first.Addr.IsValid() {
			first = frontend
		}
	}
	if err := errors.Join(replaceEndpoint(table, slotKey(b, first, 0)), replaceEndpoint(table, slotKey(b, last, 1))); err != nil {
		t.Fatal(err)
	}
	lose(b)
	c.Set(0, 4)
	c.Set(5999, 4)
	drifts, checks := untilRested(t, b, change)
	var details []string // in one drift, or in two if the reading needed a rest between the elements
	for _, d := range drifts {
		details = append(details, d.Details...)
	}
	if len(details) != 4 || checks < 2 {
		t.Errorf("after %d checks: %v; want the drift of two elements after more than one check", checks, drifts)
	}
	change()
	holds(t, b, c.Plan())
}

// TestManyElements has another program alter more elements than are looked up at once.
func TestManyElements(t *testing.T) {
	for name, lost := range map[string]bool{"reported": false, "not reported": true} {
		t.Run(name, func(t *testing.T) {
			b, table := oneFake()
			defer b.Close()
			p := clusters.NewSized(9000, 3).Plan()
			mustSync(t, b, p)
			tx := table.NewTransaction()
			tx.Flush(&knftables.Map{Name: mapEndpoints})
			if err := table.External().Run(tx); err != nil {
				t.Fatal(err)
			}
			if lost {
				lose(b)
			}
			drifts, checks := untilRested(t, b, func() { mustSync(t, b, p) })
			if len(drifts) < 2 || checks < 4 {
				t.Errorf("%d checks found %d drifts", checks, len(drifts))
			}
			holds(t, b, p)
		})
	}
}

// TestCheckWithoutCounts adds an element externally, which can be found only by reading the set.
func TestCheckWithoutCounts(t *testing.T) {
	table := newHooked()
	table.countless = true
	b, p := newBackend(testOptions, table), clusters.NewSized(5, 3).Plan()
	mustSync(t, b, p)
	table.External().Elsewhere()
	if drifts, err := b.Check(t.Context()); err != nil || len(drifts) > 0 {
		t.Fatalf("unmodified, but Check returned %v, %v", drifts, err)
	}
	if err := table.External().AddElement(setClusterIPs, &nf.Element{Key: []byte{10, 96, 0, 200}}); err != nil {
		t.Fatal(err)
	}
	if drifts, err := b.Check(t.Context()); err != nil || len(drifts) != 1 {
		t.Fatalf("Check returned %v, %v; want one drift", drifts, err)
	}
	mustSync(t, b, p)
	holds(t, b, p)
}

// TestOthersTables checks that changes of other tables are not reported.
func TestOthersTables(t *testing.T) {
	b, table := oneFake()
	mustSync(t, b, clusters.NewSized(5, 3).Plan())
	table.External().Elsewhere()
	if drifts, err := b.Check(context.Background()); err != nil || len(drifts) > 0 {
		t.Fatalf("Check returned %v, %v; want nothing", drifts, err)
	}
}

// TestOthersTablesAfterRestart checks the same for a process that found nothing to write.
func TestOthersTablesAfterRestart(t *testing.T) {
	b, table := oneFake()
	p := clusters.NewSized(5, 3).Plan()
	mustSync(t, b, p)
	b = newBackend(testOptions, table)
	mustSync(t, b, p)
	table.External().Elsewhere()
	if drifts, err := b.Check(context.Background()); err != nil || len(drifts) > 0 {
		t.Fatalf("Check returned %v, %v; want nothing", drifts, err)
	}
}

// TestTakeOver starts with a table in which another program left chains, sets and elements.
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
	mustSync(t, b, p)
	holds(t, b, p)
	if text := table.Dump(); strings.Contains(text, "service-ips") || strings.Contains(text, "1.2.3.4") || strings.Contains(text, "priority -50") {
		t.Errorf("objects of the other program are left:\n%s", text)
	}
}
