package nftables

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
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
	table := newHooked()
	b, c := newBackend(testOptions, table), clusters.NewSized(5, 3)
	defer b.Close()
	mustSync(t, b, c.Plan())
	table.External().Elsewhere()
	check(t, b)
	table.before("Fingerprint", func() error { table.External().Elsewhere(); return nil })
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

// TestFailedTransaction has another program modify a chain during a Sync with a transaction that fails: the two must not make
// up for each other in the count of transactions.
func TestFailedTransaction(t *testing.T) {
	table := newHooked()
	b, c := newBackend(testOptions, table), clusters.NewSized(5, 3)
	defer b.Close()
	mustSync(t, b, c.Plan())
	if err := replaceEndpoint(table.Fake, lastKey(t, table, mapEndpoints)); err != nil {
		t.Fatal(err)
	}
	if drifts, _ := untilRested(t, b, func() {}); len(drifts) != 1 {
		t.Fatalf("%v, want one drift", drifts)
	}
	c.Set(2, 7) // needs another chain
	before := table.Stats().Writes
	refused, meddled := false, false
	table.around = func(operation string, do func() error) error {
		switch {
		case operation == "Commit" && !refused:
			refused = true
			return errors.New("no memory")
		case operation == "Fingerprint" && !meddled && table.Stats().Writes != before: // or else it is read
			meddled = true
			if err := table.External().AddRule("nat-prerouting", "accept"); err != nil {
				t.Error(err)
			}
		}
		return do()
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

// TestFailedComparison has the comparison before a Sync fail that writes chains: a rule that another program added before is
// not taken for the Sync's own.
func TestFailedComparison(t *testing.T) {
	table := newHooked()
	b, c := newBackend(testOptions, table), clusters.NewSized(5, 3)
	mustSync(t, b, c.Plan())
	if err := table.External().AddRule("nat-prerouting", "accept"); err != nil {
		t.Fatal(err)
	}
	c.Set(2, 7)
	table.before("Fingerprint", func() error { table.around = nil; return errors.New("interrupted") })
	mustSync(t, b, c.Plan())
	rest(t, b, c.Plan())
	if strings.Contains(table.Dump(), "\n\t\taccept\n") {
		t.Error("the rule remains")
	}
}

// TestTamperingBeforeItsReport has another program add a rule which is in effect when a Sync takes the fingerprint, and of which the
// kernel reports only after that: it is not taken for our own.
func TestTamperingBeforeItsReport(t *testing.T) {
	table, c := newHooked(), clusters.NewSized(5, 3)
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
	table.before("Fingerprint", func() error {
		table.around = nil
		table.Late()
		return table.External().AddRule("nat-prerouting", "accept")
	})
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
