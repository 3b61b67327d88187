// Package laws tests what holds in each mode: how tables in a fake kernel follow plans.
package laws

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// Tables are fake tables of a backend in both families.
type Tables struct {
	// Open returns a backend on the tables, as a new process does.
	Open func() backend.Backend
	// Holds fails unless the tables equal a plan, and a new process agrees.
	Holds func(*testing.T, backend.Backend, *plan.Plan)
	// Content lists what the tables hold, except what has no meaning. Dump is all of the first table.
	Content func(*testing.T) []string
	Dump    func() string
	// Writes counts the transactions of the first table, Reads how often all of it was read; Reads may be nil if repairs read the tables.
	Writes, Reads func() int
	// Fail makes each write fail with this probability, with the error Injected.
	Fail     func(p float64, seed uint64)
	Injected error
	// Visit has packets of clients come; nil if the tables remember none.
	Visit func(*clusters.Random, backend.Backend)
}

// Thorough returns few, or many with THOROUGH=1, as make nightly sets it: how often a law is repeated with other seeds.
func Thorough[N int | uint64](few, many N) N {
	if os.Getenv("THOROUGH") == "1" {
		return many
	}
	return few
}

// Err returns the errors of a Sync.
func Err(results []backend.Result) error {
	var failed []error
	for _, result := range results {
		failed = append(failed, result.Err)
	}
	return errors.Join(failed...)
}

// Sync calls Sync, fails on an error, and returns what was written.
func Sync(t testing.TB, b backend.Backend, p *plan.Plan) (elements, rules int) {
	t.Helper()
	results := b.Sync(context.Background(), p)
	if err := Err(results); err != nil {
		t.Fatal(err)
	}
	return Written(results)
}

// Written returns what a Sync wrote.
func Written(results []backend.Result) (elements, rules int) {
	for _, result := range results {
		elements, rules = elements+result.Elements, rules+result.Rules
	}
	return elements, rules
}

// WritesNothing checks that a plan is programmed already.
func WritesNothing(t testing.TB, b backend.Backend, p *plan.Plan) {
	t.Helper()
	if elements, rules := Sync(t, b, p); elements+rules != 0 {
		t.Fatalf("nothing changed, and a Sync wrote %d elements and %d rules", elements, rules)
	}
}

func (s *Tables) visit(w *clusters.Random, b backend.Backend) {
	if s.Visit != nil {
		s.Visit(w, b)
	}
}

// Lines describes differences: a line for each object, and for each line that only one side has.
func Lines(found []backend.Difference) (lines []string) {
	for _, d := range found {
		lines = append(lines, strings.TrimSpace(d.Object+": "+d.Note))
		for _, line := range d.Extra {
			lines = append(lines, "- "+line)
		}
		for _, line := range d.Missing {
			lines = append(lines, "+ "+line)
		}
	}
	return lines
}

// FollowPlans applies random plans of several sizes to one backend: after each, the tables equal those that a new process writes.
func FollowPlans(t *testing.T, open func() *Tables, seeds uint64, sizes ...int) {
	for _, size := range sizes {
		for seed := range seeds {
			w, tables := clusters.NewRandom(seed, size), open()
			b := tables.Open()
			for range 15 {
				p := w.Step()
				Sync(t, b, p)
				tables.Holds(t, b, p)
				WritesNothing(t, b, p)
				tables.visit(w, b)
			}
		}
	}
}

// Restart replaces the backend after each plan: with the same plan, the new one writes nothing.
func Restart(t *testing.T, tables *Tables, size int) {
	w, b := clusters.NewRandom(2, size), tables.Open()
	for range Thorough(15, 40) {
		p := w.Step()
		Sync(t, b, p)
		tables.visit(w, b)
		WritesNothing(t, tables.Open(), p)
		b = tables.Open()
	}
}

// FailedWrites lets one write in ten fail: repeated Syncs succeed eventually, with the right result.
func FailedWrites(t *testing.T, tables *Tables, size int) {
	w, b := clusters.NewRandom(3, size), tables.Open()
	for range Thorough(30, 80) {
		p := w.Step()
		tables.Fail(0.1, w.Uint64())
		results := b.Sync(t.Context(), p)
		for attempts := 0; Err(results) != nil; attempts++ {
			for _, result := range results { // each family's: their join is Injected if one of them is
				if result.Err != nil && !errors.Is(result.Err, tables.Injected) {
					t.Fatal(result.Err)
				}
			}
			if attempts == 100 {
				t.Fatal(Err(results))
			}
			results = b.Sync(t.Context(), p)
		}
		tables.Fail(0, 0)
		if slices.ContainsFunc(results, func(r backend.Result) bool { return r.Again > 0 }) {
			Sync(t, b, p)
		}
		tables.Holds(t, b, p)
		tables.visit(w, b)
	}
}

// WithoutCaches applies random changes to two backends, one of which forgets all its state before each Sync. Their tables must be
// equal.
func WithoutCaches(t *testing.T, open func() *Tables, seeds uint64, sizes ...int) {
	for _, size := range sizes {
		for seed := range seeds {
			w, kept, forgetful := clusters.NewRandom(seed, size), open(), open()
			b := kept.Open()
			for range Thorough(10, 20) {
				Sync(t, b, w.Step())
				Sync(t, forgetful.Open(), w.FromScratch())
				if d := cmp.Diff(forgetful.Content(t), kept.Content(t)); d != "" {
					t.Fatalf("seed %d: cached state changes the tables (-without +with):\n%s", seed, d)
				}
			}
		}
	}
}

// CacheChangesNothing renders random plans in both families, each with and without the previous result, which is nil at first.
func CacheChangesNothing[R any](t *testing.T, size int, render func(cluster.Family, *plan.Plan, *R) *R, dump func(*R) []string) {
	w, last := clusters.NewRandom(1, size), map[cluster.Family]*R{}
	for range Thorough(20, 60) {
		p := w.Step()
		for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			cached := render(family, p, last[family])
			if d := cmp.Diff(dump(render(family, p, nil)), dump(cached)); d != "" {
				t.Fatalf("%s (-without +with the previous result):\n%s", family, d)
			}
			last[family] = cached
		}
	}
}

// FindsTampering has another program change tables in some ways: Check finds it, also if a Sync of another change comes before, one that writes
// the same number of endpoints or one more, and the next Sync repairs it, which reads the tables only if reads is set.
func FindsTampering[T any](t *testing.T, open func() (*Tables, T), reads bool, ways map[string]func(*testing.T, T) error) {
	for name, tamper := range ways {
		for _, between := range []int{0, -3, 4} { // as for [clusters.Sized.Set]; 0 is no Sync
			t.Run(fmt.Sprintf("%s, %d endpoints in between", name, between), func(t *testing.T) {
				tables, fake := open()
				b, c := tables.Open(), clusters.NewSized(5, 3)
				check := func(want int) {
					t.Helper()
					if drifts, err := b.Check(t.Context()); err != nil || len(drifts) != want {
						t.Fatalf("Check returned %v, %v; want %d drifts", drifts, err, want)
					}
				}
				Sync(t, b, c.Plan())
				check(0)
				if err := tamper(t, fake); err != nil {
					t.Fatal(err)
				}
				if between != 0 {
					c.Set(4, between)
					Sync(t, b, c.Plan())
				}
				check(1)
				count := func() int {
					if reads {
						return 0
					}
					return tables.Reads()
				}
				before := count()
				for _, result := range b.Sync(t.Context(), c.Plan()) {
					if result.Err != nil || result.Read && !reads {
						t.Errorf("the repair: %+v", result)
					}
				}
				if n := count() - before; n > 0 {
					t.Errorf("the repair read tables %d times", n)
				}
				tables.Holds(t, b, c.Plan())
				check(0)
			})
		}
	}
}

// Cost is what a change of one Service costs.
type Cost struct {
	Change string
	// Endpoints are those of the Service after it, as for [clusters.Sized.Set].
	Endpoints                     int
	Elements, Rules, Transactions int
}

// PatchSize checks the costs of changes of a Service with three endpoints, which do not depend on the number of Services.
func PatchSize(t *testing.T, open func() *Tables, costs ...Cost) {
	for _, services := range []int{10, 10_000} {
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			c, tables := clusters.NewSized(services, 3), open()
			b := tables.Open()
			Sync(t, b, c.Plan())
			for _, want := range costs {
				c.Set(5, want.Endpoints)
				before := tables.Writes()
				elements, rules := Sync(t, b, c.Plan())
				if got := (Cost{want.Change, want.Endpoints, elements, rules, tables.Writes() - before}); got != want {
					t.Errorf("costs %+v, want %+v", got, want)
				}
			}
		})
	}
}

// Walk is a plan after some random changes of few Services, so that a fuzzer tries many.
type Walk struct {
	Seed  uint64
	Steps uint8
}

func (w Walk) plan() (p *plan.Plan) {
	random := clusters.NewRandom(w.Seed, 4)
	for range 1 + w.Steps%16 {
		p = random.Step()
	}
	return p
}

// BetweenPlans programs two plans, which need not be successive, for the fuzzer.
func BetweenPlans(t *testing.T, tables *Tables, from, to Walk) {
	before, after := from.plan(), to.plan()
	b := tables.Open()
	Sync(t, b, before)
	Sync(t, b, after)
	tables.Holds(t, b, after)
	WritesNothing(t, tables.Open(), after)
}

// ExternalIPs restarts with AllowServiceExternalIPs on and off again: only the rules and elements of external IPs change, little else is
// written, and the final table equals the one from before. mark is in the line of each; rules reports whether any of them is a rule.
func ExternalIPs(t *testing.T, tables *Tables, mark string, rules bool) {
	for name, snapshot := range map[string]*cluster.Snapshot{
		"with endpoints": clusters.WithExternalIPs(200), "without endpoints": clusters.WithoutEndpoints(clusters.WithExternalIPs(200)),
	} {
		t.Run(name, func(t *testing.T) {
			nodePorts := plan.NodePortAddresses{Primary: true}
			off := plan.Compute(snapshot, &plan.Options{NodePorts: nodePorts}, nil)
			on := plan.Compute(snapshot, &plan.Options{NodePorts: nodePorts, ServeExternalIPs: true}, nil)
			Sync(t, tables.Open(), off)
			never := tables.Dump()
			if strings.Contains(never, mark) {
				t.Fatalf("an external IP is in the table:\n%s", never)
			}
			before := never
			for _, next := range []*plan.Plan{on, off, on, off} {
				b := tables.Open()
				elements, n := Sync(t, b, next)
				if n > 0 != rules {
					t.Errorf("%d rules were written", n)
				}
				tables.Holds(t, b, next)
				after := tables.Dump()
				changed := clusters.ChangedLines(before, after)
				if len(changed) < 20 {
					t.Errorf("%d lines changed, want at least one for each external IP", len(changed))
				}
				if elements > len(changed) || n > 3*len(changed) { // a chain with a changed rule is written as a whole
					t.Errorf("%d lines changed, and %d elements and %d rules were written", len(changed), elements, n)
				}
				for _, line := range changed {
					if !strings.Contains(line, mark) {
						t.Errorf("the restart changed something other than external IPs: %s", line)
					}
				}
				if next == off && after != never {
					t.Errorf("not removed: %q", clusters.ChangedLines(never, after))
				}
				before = after
			}
		})
	}
}
