package nftables

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// otherProgram is the name of the other program in all of these tests.
const otherProgram = "external (process 4711)"

// check calls Check once.
func check(t *testing.T, b *Backend) []backend.Drift {
	t.Helper()
	drifts, err := b.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return drifts
}

// subscribed returns a backend that has seen a write of another program shortly before, and compared everything since.
func subscribed(t *testing.T, p *plan.Plan) (*Backend, *nft.Fake) {
	t.Helper()
	b, table := oneFake()
	t.Cleanup(func() { _ = b.Close() })
	mustSync(t, b, p)
	table.External().Elsewhere()
	if drifts, _ := untilRested(t, b, func() {}); len(drifts) > 0 {
		t.Fatalf("unmodified, but %v", drifts)
	}
	return b, table
}

// TestWriterIsNamed has another program modify the rules several times: from the second time on it is named, also if our own
// Syncs come in between.
func TestWriterIsNamed(t *testing.T) {
	b, table := oneFake()
	defer b.Close()
	c := clusters.NewSized(5, 3)
	mustSync(t, b, c.Plan())
	for i, want := range []string{"", otherProgram, otherProgram} {
		if err := table.External().AddRule("nat-prerouting", "accept"); err != nil {
			t.Fatal(err)
		}
		if i == 2 { // the Sync finds it before Check does
			c.Set(1, 2)
			mustSync(t, b, c.Plan())
		}
		if drifts := check(t, b); len(drifts) != 1 || drifts[0].Writer != want {
			t.Errorf("modification %d: %+v, want the writer %q", i, drifts, want)
		}
		c.Set(1, i+2)
		mustSync(t, b, c.Plan())
	}
	if err := replaceEndpoint(table, lastKey(t, table, mapEndpoints)); err != nil {
		t.Fatal(err)
	}
	if drifts, _ := untilRested(t, b, func() {}); len(drifts) != 1 || drifts[0].Writer != otherProgram {
		t.Errorf("an altered element: %+v, want the writer %q", drifts, otherProgram)
	}
}

// TestWritesElsewhere has another program write its own tables all the time: only the first write causes an audit, and an
// element of ours that it alters later is found without the pause between two audits.
func TestWritesElsewhere(t *testing.T) {
	b, table := subscribed(t, clusters.NewSized(5, 3).Plan())
	b.drift.auditAfter[unknownWrite] = time.Now().Add(time.Hour)
	for range 100 {
		table.External().Elsewhere()
		if check(t, b); b.Auditing() || b.drift.suspect != [knownWrite + 1]bool{} {
			t.Fatal("a write to another table caused an audit")
		}
	}
	if err := replaceEndpoint(table, lastKey(t, table, mapEndpoints)); err != nil {
		t.Fatal(err)
	}
	if drifts, _ := untilRested(t, b, func() {}); len(drifts) != 1 {
		t.Errorf("the altered element was not found: %v", drifts)
	}
}

// TestSubscriptionEnds lets a subscription run out: the next write of another program is an unknown one.
func TestSubscriptionEnds(t *testing.T) {
	b, table := subscribed(t, clusters.NewSized(5, 3).Plan())
	if b.drift.writers.watcher == nil {
		t.Fatal("there is no subscription after a write of another program")
	}
	b.drift.writers.until = time.Now().Add(-time.Second)
	check(t, b)
	if b.drift.writers.watcher != nil {
		t.Error("the subscription goes on")
	}
	table.External().Elsewhere()
	clear(b.drift.auditAfter[:])
	if check(t, b); b.drift.auditAfter[unknownWrite].IsZero() {
		t.Error("an unknown write caused no audit")
	}
}

// TestWritesElsewhereDuringSync has another program write its own table while our chains are written. The kernel's
// notifications show that it did not write ours, so there is no second Sync.
func TestWritesElsewhereDuringSync(t *testing.T) {
	table := &meddled{Fake: nft.NewFake(knftables.IPv4Family, TableName), meddle: func(*nft.Fake) {}}
	b, c := New(testOptions, table), clusters.NewSized(5, 3)
	defer b.Close()
	mustSync(t, b, c.Plan())
	table.External().Elsewhere()
	check(t, b)
	table.meddle = func(f *nft.Fake) { f.External().Elsewhere() }
	c.Set(2, 7)
	if result := b.Sync(t.Context(), c.Plan())[0]; result.Err != nil || result.Again != 0 {
		t.Errorf("Sync returned %+v", result)
	}
}

// numberless is a table whose generation cannot be read while err is set.
type numberless struct {
	*nft.Fake
	err error
}

func (n *numberless) Generation(ctx context.Context) (nft.Generation, error) {
	if n.err != nil {
		return 0, n.err
	}
	return n.Fake.Generation(ctx)
}

// TestGenerationFails checks that external changes are found after the generation could not be read once.
func TestGenerationFails(t *testing.T) {
	table := &numberless{Fake: nft.NewFake(knftables.IPv4Family, TableName)}
	b := New(testOptions, table)
	defer b.Close()
	mustSync(t, b, clusters.NewSized(5, 3).Plan())
	table.err = errors.New("no memory")
	_, _ = b.Check(t.Context())
	table.err = nil
	if err := table.External().AddRule("nat-prerouting", "accept"); err != nil {
		t.Fatal(err)
	}
	if drifts := check(t, b); len(drifts) != 1 {
		t.Errorf("Check returned %v, want one drift", drifts)
	}
}

// TestAlteredElements has another program alter the first and the last of many elements. Both are found and written again by
// Syncs that read nothing; if one was altered once more meanwhile, or deleted, the table is read.
func TestAlteredElements(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(table *nft.Fake, key []byte) error
		read      bool
	}{
		"nothing else":  {func(*nft.Fake, []byte) error { return nil }, false},
		"altered again": {replaceEndpoint, false},
		"deleted":       {func(table *nft.Fake, key []byte) error { return table.External().DeleteElement(mapEndpoints, key) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusters.NewSized(6000, 3)
			b, table := subscribed(t, c.Plan())
			first, last := firstKey(t, table, mapEndpoints), lastKey(t, table, mapEndpoints)
			if err := errors.Join(replaceEndpoint(table, first), replaceEndpoint(table, last)); err != nil {
				t.Fatal(err)
			}
			clear(b.drift.auditAfter[:])
			found := 0
			for checks := 0; checks == 0 || b.Auditing(); checks++ {
				drifts := check(t, b)
				if found += len(drifts); len(drifts) == 0 {
					continue
				}
				if err := test.meanwhile(table, first); err != nil {
					t.Fatal(err)
				}
				result := b.Sync(t.Context(), c.Plan())[0]
				if result.Err != nil || result.Read != test.read {
					t.Errorf("Sync read the table: %v, want %v; error %v", result.Read, test.read, result.Err)
				}
				test.meanwhile, test.read = func(*nft.Fake, []byte) error { return nil }, false
			}
			if want := 2; found < 1 || found > want {
				t.Errorf("%d drifts, want up to %d", found, want)
			}
			clear(b.drift.auditAfter[:])
			if drifts, _ := untilRested(t, b, func() { mustSync(t, b, c.Plan()) }); len(drifts) > 1 {
				t.Errorf("afterwards: %v", drifts)
			}
			holds(t, b, c.Plan())
		})
	}
}

// refusing is a meddled table that refuses the next Commit.
type refusing struct {
	meddled
	next error
}

func (r *refusing) Commit(ctx context.Context, b *nft.Batch) error {
	if err := r.next; err != nil {
		r.next = nil
		return err
	}
	return r.Fake.Commit(ctx, b)
}

// TestFailedTransaction has another program modify a chain during a Sync with a transaction that fails: the two must not make
// up for each other in the count of transactions.
func TestFailedTransaction(t *testing.T) {
	table := &refusing{meddled: meddled{Fake: nft.NewFake(knftables.IPv4Family, TableName), meddle: func(*nft.Fake) {}}}
	b, c := New(testOptions, table), clusters.NewSized(5, 3)
	defer b.Close()
	mustSync(t, b, c.Plan())
	if err := replaceEndpoint(table.Fake, lastKey(t, table, mapEndpoints)); err != nil {
		t.Fatal(err)
	}
	if drifts, _ := untilRested(t, b, func() {}); len(drifts) != 1 {
		t.Fatalf("%v, want one drift", drifts)
	}
	b.drift.writers.close()
	table.next = errors.New("no memory") // what was altered cannot be written alone
	c.Set(2, 7)                          // needs another chain
	before := table.Stats().Writes
	table.meddle = func(f *nft.Fake) {
		if f.Stats().Writes == before {
			return // it is read
		}
		table.meddle = func(*nft.Fake) {}
		if err := f.External().AddRule("nat-prerouting", "accept"); err != nil {
			t.Error(err)
		}
	}
	result := b.Sync(t.Context(), c.Plan())[0]
	for syncs := 0; syncs < 3 && (result.Again > 0 || len(check(t, b)) > 0); syncs++ {
		result = b.Sync(t.Context(), c.Plan())[0]
	}
	if result.Err != nil {
		t.Error(result.Err)
	}
	if strings.Contains(table.Dump(), "\n\t\taccept\n") {
		t.Errorf("the change remains:\n%s", table.Dump())
	}
}

// interrupted is a table whose next fingerprint fails.
type interrupted struct {
	*nft.Fake
	err error
}

func (i *interrupted) Fingerprint(ctx context.Context, text string) (string, map[string]string, error) {
	if err := i.err; err != nil {
		i.err = nil
		return "", nil, err
	}
	return i.Fake.Fingerprint(ctx, text)
}

// mended checks and syncs until nothing is found and no Sync has to follow.
func mended(t *testing.T, b *Backend, p *plan.Plan) {
	t.Helper()
	for range 6 {
		clear(b.drift.auditAfter[:])
		drifts, _ := untilRested(t, b, func() {})
		result := b.Sync(t.Context(), p)[0]
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		if len(drifts) == 0 && result.Again == 0 {
			return
		}
	}
	t.Fatal("each check finds a drift")
}

// TestFailedComparison has the comparison before a Sync fail that writes chains: a rule that another program added before is
// not taken for the Sync's own.
func TestFailedComparison(t *testing.T) {
	table := &interrupted{Fake: nft.NewFake(knftables.IPv4Family, TableName)}
	b, c := New(testOptions, table), clusters.NewSized(5, 3)
	mustSync(t, b, c.Plan())
	if err := table.External().AddRule("nat-prerouting", "accept"); err != nil {
		t.Fatal(err)
	}
	c.Set(2, 7)
	table.err = errors.New("interrupted")
	mustSync(t, b, c.Plan())
	mended(t, b, c.Plan())
	if strings.Contains(table.Dump(), "\n\t\taccept\n") {
		t.Error("the rule remains")
	}
}

// TestFirstGenerationFails has the reading of the generation fail in the first Sync: a later write of another program is
// found.
func TestFirstGenerationFails(t *testing.T) {
	table := &numberless{Fake: nft.NewFake(knftables.IPv4Family, TableName), err: errors.New("no answer")}
	b, c := New(testOptions, table), clusters.NewSized(5, 3)
	mustSync(t, b, c.Plan())
	table.err = nil
	if err := table.External().AddRule("nat-prerouting", "accept"); err != nil {
		t.Fatal(err)
	}
	mended(t, b, c.Plan())
	if strings.Contains(table.Dump(), "\n\t\taccept\n") {
		t.Error("the rule remains")
	}
}

// TestSyncDuringAudit changes a Service during an audit that has yet to compare it: an element of it that another program
// altered, and that the Sync does not write, is found.
func TestSyncDuringAudit(t *testing.T) {
	b, table := oneFake()
	c := clusters.NewSized(6000, 3)
	mustSync(t, b, c.Plan())
	var last plan.Frontend
	for frontend := range b.families[0].have.holds.frontends.All() {
		last = frontend
	}
	if err := replaceEndpoint(table, slotKey(b, last, 1)); err != nil {
		t.Fatal(err)
	}
	if drifts := check(t, b); len(drifts) > 0 || !b.Auditing() {
		t.Fatalf("the first part of the audit is the only one, or found %v", drifts)
	}
	c.Set(5999, 4)
	mustSync(t, b, c.Plan())
	mended(t, b, c.Plan())
	holds(t, b, c.Plan())
}
