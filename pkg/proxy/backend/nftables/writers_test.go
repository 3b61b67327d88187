package nftables

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
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

// TestWriterIsNamed has another program modify the rules several times: it is named, also if our own Syncs come in between.
func TestWriterIsNamed(t *testing.T) {
	b, table := oneFake()
	defer b.Close()
	c := clusters.NewSized(5, 3)
	mustSync(t, b, c.Plan())
	for i := range 3 {
		if err := table.External().AddRule("nat-prerouting", "accept"); err != nil {
			t.Fatal(err)
		}
		if i == 2 { // the Sync finds it before Check does
			c.Set(1, 2)
			mustSync(t, b, c.Plan())
		}
		if drifts := check(t, b); len(drifts) != 1 || drifts[0].Writer != otherProgram {
			t.Errorf("modification %d: %+v, want the writer %q", i, drifts, otherProgram)
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

// TestWritesElsewhere has another program write its own tables all the time, which causes no check.
func TestWritesElsewhere(t *testing.T) {
	b, table := oneFake()
	defer b.Close()
	mustSync(t, b, clusters.NewSized(5, 3).Plan())
	untilRested(t, b, func() {})
	for range 100 {
		table.External().Elsewhere()
	}
	select {
	case <-b.Modified():
		t.Error("writes to another table caused a check")
	default:
	}
}

// TestWritesElsewhereDuringSync has another program write its own table while our chains are written. The kernel's
// notifications show that it did not write ours, so there is no second Sync.
func TestWritesElsewhereDuringSync(t *testing.T) {
	table := &meddled{Fake: nfttest.New(knftables.IPv4Family, TableName), meddle: func(*nfttest.Fake) {}}
	b, c := newBackend(testOptions, table), clusters.NewSized(5, 3)
	defer b.Close()
	mustSync(t, b, c.Plan())
	table.External().Elsewhere()
	check(t, b)
	table.meddle = func(f *nfttest.Fake) { f.External().Elsewhere() }
	c.Set(2, 7)
	if result := b.Sync(t.Context(), c.Plan())[0]; result.Err != nil || result.Again != 0 {
		t.Errorf("Sync returned %+v", result)
	}
}

// TestAlteredElements has another program alter the first and the last of many elements, and one of them once more, or delete it,
// after both were found. They are written again by Syncs that read nothing.
func TestAlteredElements(t *testing.T) {
	for name, meanwhile := range map[string]func(table *nfttest.Fake, key []byte) error{
		"nothing else":  func(*nfttest.Fake, []byte) error { return nil },
		"altered again": replaceEndpoint,
		"deleted":       func(table *nfttest.Fake, key []byte) error { return table.External().DeleteElement(mapEndpoints, key) },
	} {
		t.Run(name, func(t *testing.T) {
			c := clusters.NewSized(6000, 3)
			b, table := oneFake()
			defer b.Close()
			mustSync(t, b, c.Plan())
			first, last := firstKey(t, table, mapEndpoints), lastKey(t, table, mapEndpoints)
			if err := errors.Join(replaceEndpoint(table, first), replaceEndpoint(table, last)); err != nil {
				t.Fatal(err)
			}
			if drifts := check(t, b); len(drifts) != 1 {
				t.Errorf("found %v", drifts)
			}
			if err := meanwhile(table, first); err != nil {
				t.Fatal(err)
			}
			if result := b.Sync(t.Context(), c.Plan())[0]; result.Err != nil || result.Read || result.Elements > 10 {
				t.Errorf("Sync: %+v", result)
			}
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
	table := &refusing{meddled: meddled{Fake: nfttest.New(knftables.IPv4Family, TableName), meddle: func(*nfttest.Fake) {}}}
	b, c := newBackend(testOptions, table), clusters.NewSized(5, 3)
	defer b.Close()
	mustSync(t, b, c.Plan())
	if err := replaceEndpoint(table.Fake, lastKey(t, table, mapEndpoints)); err != nil {
		t.Fatal(err)
	}
	if drifts, _ := untilRested(t, b, func() {}); len(drifts) != 1 {
		t.Fatalf("%v, want one drift", drifts)
	}
	table.next = errors.New("no memory")
	c.Set(2, 7) // needs another chain
	before := table.Stats().Writes
	table.meddle = func(f *nfttest.Fake) {
		if f.Stats().Writes == before {
			return // it is read
		}
		table.meddle = func(*nfttest.Fake) {}
		if err := f.External().AddRule("nat-prerouting", "accept"); err != nil {
			t.Error(err)
		}
	}
	result := b.Sync(t.Context(), c.Plan())[0]
	for syncs := 0; syncs < 3 && (result.Err != nil || result.Again > 0 || len(check(t, b)) > 0); syncs++ {
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
	*nfttest.Fake
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
	table := &interrupted{Fake: nfttest.New(knftables.IPv4Family, TableName)}
	b, c := newBackend(testOptions, table), clusters.NewSized(5, 3)
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

// overtaken is a table that another program writes before its fingerprint is taken.
type overtaken struct {
	*nfttest.Fake
	write func()
}

func (o *overtaken) Fingerprint(ctx context.Context, except string) (string, map[string]string, error) {
	o.write()
	return o.Fake.Fingerprint(ctx, except)
}

// TestTamperingBeforeItsReport has another program add a rule which is in effect when a Sync takes the fingerprint, and of which the
// kernel reports only after that: it is not taken for our own.
func TestTamperingBeforeItsReport(t *testing.T) {
	table, c := &overtaken{Fake: nfttest.New(knftables.IPv4Family, TableName), write: func() {}}, clusters.NewSized(5, 3)
	b := newBackend(testOptions, table)
	mustSync(t, b, c.Plan())
	rules := func() []string {
		all, err := table.Rules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all["nat-prerouting"]
	}
	before := rules()
	table.write = func() {
		table.write = func() {}
		table.Late()
		if err := table.External().AddRule("nat-prerouting", "accept"); err != nil {
			t.Error(err)
		}
	}
	c.Set(1, 4) // needs a new chain
	mustSync(t, b, c.Plan())
	if now := rules(); len(now) != len(before)+1 {
		t.Fatalf("the rules are %q", now)
	}
	rest(t, b, c.Plan())
	if now := rules(); !slices.Equal(now, before) {
		t.Errorf("the rules are %q, want %q", now, before)
	}
}
