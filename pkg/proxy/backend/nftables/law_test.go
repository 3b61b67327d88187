package nftables

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
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
			watched = append(watched, nf.TableName{Family: table.Family(), Name: table.Name()})
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
	v4 := nfttest.New(dialectOf(cluster.IPv4).number, TableName)
	v6 := nfttest.New(dialectOf(cluster.IPv6).number, TableName).Beside(v4)
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
				if !(&search{pool: pool}).keeps(&raw, clients, &want.content, new(buffer)) {
					t.Fatalf("%s: %s sends client %x to %x, which its pool %x does not have", f.schema.family, clients.name, raw.Key, raw.Value, uint64(pool))
				}
			}
		}
	}
}

// forgetAll lets Check remove the clients of endpoints that left, and returns how many parts it took.
func forgetAll(t *testing.T, b *Backend) (parts int) {
	t.Helper()
	for ; b.CheckSoon(); parts++ {
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
func mustSync(t testing.TB, b *Backend, p *plan.Plan) (elements, rules int) {
	t.Helper()
	return laws.Sync(t, b, p)
}

// law returns fake tables for the laws of all backends.
func law() *laws.Tables {
	tables, _ := lawAndFake()
	return tables
}

// lawAndFake returns them with the table of IPv4.
func lawAndFake() (*laws.Tables, *nfttest.Fake) {
	_, fakes := fakes()
	return &laws.Tables{
		Open: func() backend.Backend { return newBackend(testOptions, fakes[0], fakes[1]) },
		Holds: func(t *testing.T, b backend.Backend, p *plan.Plan) {
			holds(t, b.(*Backend), p)
			if strings.Contains(fakes[0].Dump(), "policy drop") { // which a fingerprint would take for ours
				t.Error("a policy is drop")
			}
		},
		Content: func(t *testing.T) (all []string) {
			for i, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
				all = append(all, dump(asRead(t, fakes[i], newSchema(family, 0, false), largeSet).holds)...)
			}
			return all
		},
		Dump:   func() string { return fakes[0].Dump() },
		Writes: func() int { return fakes[0].Stats().Writes },
		Fail: func(p float64, seed uint64) {
			for i, fake := range fakes {
				fake.FailRandomly(p, seed+uint64(i))
			}
		},
		Injected: nfttest.ErrInjected,
		Visit:    func(w *clusters.Random, b backend.Backend) { visit(w, b.(*Backend)) },
	}, fakes[0]
}

func TestTablesFollowPlans(t *testing.T) { laws.FollowPlans(t, law, laws.Thorough[uint64](6, 40), 12) }

func TestWithoutCaches(t *testing.T) { laws.WithoutCaches(t, law, laws.Thorough[uint64](6, 15), 12) }

func TestRestart(t *testing.T) { laws.Restart(t, law(), 12) }

func TestFailedWrites(t *testing.T) { laws.FailedWrites(t, law(), 12) }

func TestGateRestart(t *testing.T) { laws.ExternalIPs(t, law(), "198.0.0.", false) }

func TestCacheChangesNothing(t *testing.T) {
	laws.CacheChangesNothing(t, 12, func(family cluster.Family, p *plan.Plan, last *desired) *desired {
		if last == nil {
			last = nothing(newSchema(family, 0, false))
		}
		return render(p, testOptions, last)
	}, dump)
}

// TestPatchSize also writes a chain for four slots, when the first pool has four.
func TestPatchSize(t *testing.T) {
	laws.PatchSize(t, law,
		laws.Cost{Change: "one more endpoint", Endpoints: 4, Elements: 1 + 2, Rules: 4, Transactions: 5},
		laws.Cost{Change: "one fewer", Endpoints: 3, Elements: 2 + 1, Transactions: 4},
		laws.Cost{Change: "one replaced", Endpoints: -3, Elements: 2, Transactions: 1})
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
