package nftables

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

var testOptions = Options{Mark: 0x4000}

// newBackend returns a backend on tables, which are Fakes or in the network namespace of the calling thread.
func newBackend(opts Options, tables ...nft.Table) *Backend {
	var notices keeper.Notices
	if fake, ok := tables[0].(interface{ Watch() *nf.Watch }); ok {
		notices = fake.Watch()
	} else {
		var watched []nf.TableName
		for _, table := range tables {
			watched = append(watched, nf.TableName{Family: nf.ParseFamily(string(table.Family())), Name: table.Name()})
		}
		watch, err := nf.OpenWatch(watched...)
		if err != nil {
			panic(err)
		}
		notices = watch
	}
	return New(opts, notices, tables...)
}

// lose makes the backend miss what was written since the last Check or Sync, and all that is written until it finds out.
func lose(b *Backend) { b.families[0].table.(interface{ Lose() }).Lose() }

// fakes returns a backend on two fake tables.
func fakes() (*Backend, []*nfttest.Fake) {
	v4 := nfttest.New(dialectOf(cluster.IPv4).nftFamily, TableName)
	v6 := nfttest.New(dialectOf(cluster.IPv6).nftFamily, TableName).Beside(v4)
	return newBackend(testOptions, v4, v6), []*nfttest.Fake{v4, v6}
}

// holds checks that the tables equal the plan, and that a new process agrees.
func holds(t *testing.T, b *Backend, p *plan.Plan) {
	t.Helper()
	forgetAll(t, b)
	for _, f := range b.families {
		have := asRead(t, f.table, f.schema, largeSet)
		readAlike(t, f)
		want := render(p, testOptions, nothing(f.schema))
		if d := cmp.Diff(dump(want), dump(have.holds)); d != "" || len(have.strays) > 0 || !have.leftovers.none() {
			t.Fatalf("%s: the table differs from the plan, with strays %v and leftovers %v (-want +have):\n%s", f.schema.family,
				have.strays, have.leftovers, d)
		}
		patch := diff(have, want)
		patch.forget = nil // maps that were read are always searched
		if !patch.empty() {
			t.Fatalf("%s: the table equals the plan, but diff finds %d operations", f.schema.family, len(slices.Collect(patch.ops())))
		}
		for pool := range want.pools.All() {
			clients := f.schema.clients(pool)
			for raw, err := range f.table.Elements(context.Background(), clients.name) {
				if err != nil {
					t.Fatal(err)
				}
				if e, err := clients.decode(&raw, new(buffer)); err != nil || !want.remembers(pool, e.endpoint()) {
					t.Fatalf("%s: %s sends a client to %s, which its pool %x does not have (%v)", f.schema.family, clients.name, e.endpoint(),
						uint64(pool), err)
				}
			}
		}
	}
}

// forgetAll lets Check remove the clients of endpoints that left, and returns how many parts it took.
func forgetAll(t *testing.T, b *Backend) (parts int) {
	t.Helper()
	for ; b.Auditing(); parts++ {
		if _, err := b.Check(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return parts
}

// asRead returns what a table holds, without regard to what it should hold.
func asRead(t *testing.T, table nft.Table, s *schema, large int) *state {
	t.Helper()
	found, err := readBy(context.Background(), table, s, large)
	if err != nil {
		t.Fatal(err)
	}
	return found.state(&content{})
}

// readAlike checks that reading a table in full, and by the keys that its sets should have, gives the same.
func readAlike(t *testing.T, f *family) {
	t.Helper()
	full, found := asRead(t, f.table, f.schema, math.MaxInt), asRead(t, f.table, f.schema, 0)
	if d := cmp.Diff(dump(full.holds), dump(found.holds)); d != "" || len(full.strays) != len(found.strays) {
		t.Fatalf("%s: reading by keys differs from reading in full (-full +by keys):\n%s", f.schema.family, d)
	}
}

// dump formats all elements and chains for comparison. It omits the slots of endpoints that are not picked by a hash, which have no meaning.
func dump(d *desired) []string {
	var lines []string
	for s, e := range d.schema.elements(&d.content) {
		if of, _ := d.frontends.Get(e.frontend); of == nil || !of.goes.by.Hashes() {
			e.slot = 0
		}
		lines = append(lines, s.name+" "+s.text(&e))
	}
	for t := range d.targets.All() {
		lines = append(lines, t.name())
	}
	for port := range d.sticky.All() {
		lines = append(lines, port.clients())
	}
	digest := "none"
	if d.skeleton != nil {
		digest = d.skeleton.digest
	}
	slices.Sort(lines)
	return append(lines, "skeleton "+digest)
}

// mustSync calls Sync and fails on an error.
func mustSync(t *testing.T, b *Backend, p *plan.Plan) (elements, rules int) {
	t.Helper()
	for _, result := range b.Sync(context.Background(), p) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		elements, rules = elements+result.Elements, rules+result.Rules
	}
	return elements, rules
}

// TestTablesFollowPlans applies random plans to one backend: after each, the tables equal those that a new process writes.
func TestTablesFollowPlans(t *testing.T) {
	for seed := range uint64(20) {
		w := clusters.NewRandom(seed, 12)
		b, _ := fakes()
		for range 30 {
			p := w.Step()
			mustSync(t, b, p)
			holds(t, b, p)
			if elements, rules := mustSync(t, b, p); elements+rules != 0 {
				t.Fatalf("a second sync of one plan wrote %d elements and %d rules", elements, rules)
			}
			visit(w, b)
		}
	}
}

// TestCacheChangesNothing renders each plan with and without the previous result.
func TestCacheChangesNothing(t *testing.T) {
	w := clusters.NewRandom(1, 12)
	last := map[cluster.Family]*desired{cluster.IPv4: nothing(newSchema(cluster.IPv4, 0, false)), cluster.IPv6: nothing(newSchema(cluster.IPv6, 0, false))}
	for range 100 {
		p := w.Step()
		for family, before := range last {
			cached, fresh := render(p, testOptions, before), render(p, testOptions, nothing(before.schema))
			if d := cmp.Diff(dump(fresh), dump(cached)); d != "" {
				t.Fatalf("%s (-fresh +cached):\n%s", family, d)
			}
			last[family] = cached
		}
	}
}

// TestRestart replaces the backend after each plan: with the same plan, the new one writes nothing.
func TestRestart(t *testing.T) {
	w := clusters.NewRandom(2, 12)
	b, _ := fakes()
	for range 50 {
		p := w.Step()
		mustSync(t, b, p)
		visit(w, b)
		b = newBackend(testOptions, b.families[0].table, b.families[1].table)
		if elements, rules := mustSync(t, b, p); elements+rules != 0 {
			t.Fatalf("a restart with nothing changed wrote %d elements and %d rules", elements, rules)
		}
		b = newBackend(testOptions, b.families[0].table, b.families[1].table)
	}
}

// TestRestartLongName restarts with a Service whose name and port exceed the length of a comment.
func TestRestartLongName(t *testing.T) {
	c := clusters.NewSized(1, 2)
	service, _ := c.Services.Get(clusters.NameAt(0))
	long := *service
	long.Name = cluster.ServiceName{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("s", 63)}
	long.Ports = []cluster.ServicePort{{Name: strings.Repeat("p", 15), Protocol: cluster.TCP, Port: 80}}
	c.Services.Set(long.Name, &long)
	c.Services.Delete(service.Name)
	b, table := oneFake()
	mustSync(t, b, c.Plan())
	if elements, rules := mustSync(t, newBackend(testOptions, table), c.Plan()); elements+rules != 0 {
		t.Errorf("a restart with nothing changed wrote %d elements and %d rules", elements, rules)
	}
}

// TestFailedWrites lets one write in ten fail: repeated syncs succeed eventually, with the right result.
func TestFailedWrites(t *testing.T) {
	w := clusters.NewRandom(3, 12)
	b, tables := fakes()
	for i, table := range tables {
		table.FailRandomly(0.1, uint64(i))
	}
	for range 100 {
		p := w.Step()
		for attempts := 0; ; attempts++ {
			var failed []error
			for _, result := range b.Sync(context.Background(), p) {
				failed = append(failed, result.Err)
			}
			if errors.Join(failed...) == nil {
				break
			}
			if attempts == 100 {
				t.Fatal(errors.Join(failed...))
			}
		}
		for _, table := range tables {
			table.FailRandomly(0, 0)
		}
		holds(t, b, p)
		visit(w, b)
		for i, table := range tables {
			table.FailRandomly(0.1, uint64(i))
		}
	}
}

// TestPatchSize checks the cost of changing one endpoint, at several sizes of the cluster.
func TestPatchSize(t *testing.T) {
	for _, services := range []int{10, 10_000} {
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			c := clusters.NewSized(services, 3)
			b, _ := fakes()
			mustSync(t, b, c.Plan())
			// A chain for four slots is created when the first pool has four.
			for _, step := range []struct {
				name            string
				endpoints       int
				elements, rules int
			}{
				{"one more endpoint", 4, 1 + 2, 4},
				{"one fewer", 3, 2 + 1, 0},
				{"one replaced", -3, 2, 0},
			} {
				c.Set(5, step.endpoints)
				elements, rules := mustSync(t, b, c.Plan())
				if elements != step.elements || rules != step.rules {
					t.Errorf("%s: %d element operations and %d rules, want %d and %d", step.name, elements, rules, step.elements, step.rules)
				}
			}
		})
	}
}
