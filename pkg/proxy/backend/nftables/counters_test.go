package nftables

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// afterEach returns a table that calls a function after each transaction.
func afterEach(f *nfttest.Fake, call func()) *hooked {
	return &hooked{Fake: f, around: func(operation string, do func() error) error {
		err := do()
		if operation == "Commit" || operation == "Run" {
			call()
		}
		return err
	}}
}

// served returns the frontends with an endpoint in every slot that a packet may pick.
func served(table *nfttest.Fake) []string {
	var (
		objects  = map[string][]string{} // the lines of sets and chains
		lookedUp = regexp.MustCompile(`map @([\w-]+)`)
		onward   = regexp.MustCompile(`goto ([\w-]+)`)
		slots    = regexp.MustCompile(`mod (\d+) map @([\w-]+)`)
		of       string
	)
	for line := range strings.Lines(table.Dump()) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "{" {
			of = fields[1]
			if fields[0] == "chain" {
				of = "chain " + fields[1]
			}
		}
		objects[of] = append(objects[of], strings.TrimSpace(line))
	}
	found := map[string]bool{}
	for _, hook := range objects["chain services"] {
		name := lookedUp.FindStringSubmatch(hook)
		if name == nil {
			continue
		}
		for _, element := range objects[name[1]] {
			at := onward.FindStringSubmatch(element)
			if at == nil {
				continue
			}
			frontend, _, _ := strings.Cut(element, " comment")
			for !strings.HasPrefix(at[1], "pick-") {
				chain := objects["chain "+at[1]]
				at = onward.FindStringSubmatch(chain[len(chain)-2])
			}
			pick := slots.FindStringSubmatch(strings.Join(objects["chain "+at[1]], "\n"))
			n, _ := strconv.Atoi(pick[1])
			whole := true
			for i := range n {
				whole = whole && slices.ContainsFunc(objects[pick[2]], func(slot string) bool {
					return strings.HasPrefix(slot, fmt.Sprintf("%s . %d : ", frontend, i))
				})
			}
			if whole {
				found[frontend] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestCountLess lets a cluster grow until its counters need too much memory: first endpoints count no longer, then
// nothing does. Every frontend is served after each transaction on the way, and a restart finds the table as it should be.
// Chains that only the earlier maps lead to are removed in the same Sync.
func TestCountLess(t *testing.T) {
	// With two endpoints each, n Services have n elements that count Services and 2n that count endpoints.
	limits := backend.CounterLimits{Most: 30}
	c := clusters.NewSized(5, 2)
	fake := nfttest.New(dialectOf(cluster.IPv4).number, TableName)
	var before []string
	table := afterEach(fake, func() {
		now := served(fake)
		for _, frontend := range before {
			if !slices.Contains(now, frontend) {
				t.Fatalf("%s is not served for a moment; these are: %q", frontend, now)
			}
		}
	})
	opts := testOptions
	opts.Counters = limits
	b := newBackend(opts, table)
	for _, step := range []struct {
		services int
		// first is the number of endpoints of the first Service. No other has so many: when it changes, a chain is no longer needed.
		first int
		want  backend.Counting
	}{{5, 1, backend.CountEndpoints}, {10, 1, backend.CountEndpoints}, {11, 3, backend.CountServices}, {30, 3, backend.CountServices},
		{31, 4, backend.CountNothing}, {40, 4, backend.CountNothing}} {
		for n := range step.services {
			c.Set(n, 2)
		}
		c.Set(0, step.first)
		mustSync(t, b, c.Plan())
		holds(t, b, c.Plan())
		if got := b.Counts(cluster.IPv4); got != step.want {
			t.Errorf("with %d Services: %s counts, want %s", step.services, got, step.want)
		}
		if before = served(fake); len(before) != step.services {
			t.Fatalf("%d of %d Services are served", len(before), step.services)
		}
		if elements, rules := mustSync(t, b, c.Plan()); elements+rules != 0 {
			t.Errorf("with %d Services: a second sync wrote %d elements and %d rules", step.services, elements, rules)
		}
		if elements, rules := mustSync(t, newBackend(opts, fake), c.Plan()); elements+rules != 0 {
			t.Errorf("with %d Services: a restart wrote %d elements and %d rules", step.services, elements, rules)
		}
		if found, err := compareTable(t.Context(), fake, c.Plan(), cluster.IPv4, opts); err != nil || len(found) > 0 {
			t.Errorf("with %d Services: the comparison found %v, %v", step.services, found, err)
		}
	}
	if text := fake.Dump(); strings.Contains(text, "; counter") {
		t.Errorf("a set still counts:\n%s", text)
	}
	// Another process may count everything again.
	b = newBackend(testOptions, table)
	mustSync(t, b, c.Plan())
	holds(t, b, c.Plan())
	if b.Counts(cluster.IPv4) != backend.CountEndpoints || strings.Contains(fake.Dump(), uncounted) {
		t.Error("after a restart without a limit, not everything counts")
	}
}

// TestCountLessConfigured fixes what is counted, whatever it needs.
func TestCountLessConfigured(t *testing.T) {
	for _, level := range []backend.Counting{backend.CountEndpoints, backend.CountServices, backend.CountNothing} {
		c := clusters.NewSized(10, 2)
		b, _ := fakes()
		for _, f := range b.families {
			f.opts.Counters = backend.CounterLimits{Counting: level}
		}
		mustSync(t, b, c.Plan())
		holds(t, b, c.Plan())
		for _, f := range b.families {
			for _, s := range f.schema.sets {
				if s.counts && level > s.needs() || strings.HasSuffix(s.name, uncounted) && level <= s.needs() {
					t.Errorf("at level %s, %s has the wrong declaration", level, s.name)
				}
			}
		}
		if text := (Mode{b.families[0].opts}).Render(c.Plan(), cluster.IPv4); strings.Contains(text, "map endpoints {") != (level == backend.CountEndpoints) {
			t.Errorf("at level %s, the rendered table is\n%s", level, text)
		}
	}
}

// TestRangesHoldWhileCountingChanges changes what is counted, so that the map of source ranges has another name: at each moment the rule
// that looks them up finds the restricted frontends.
func TestRangesHoldWhileCountingChanges(t *testing.T) {
	snapshot := clusters.WithExternalIPs(20)
	services := snapshot.Services.Edit()
	for name, was := range snapshot.Services.All() {
		if was.External != nil {
			s, external := *was, *was.External
			external.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
			s.External = &external
			services.Set(name, &s)
		}
	}
	p := plan.Compute(&cluster.Snapshot{Services: services.Map(), Node: snapshot.Node}, &plan.Options{}, nil)
	fake := nfttest.New(dialectOf(cluster.IPv4).number, TableName)
	restricted := func() int {
		text := fake.Dump()
		_, chain, _ := strings.Cut(text, "chain "+chainRanges+" {")
		_, rule, _ := strings.Cut(chain, "vmap @")
		name, _, _ := strings.Cut(rule, "\n")
		_, elements, _ := strings.Cut(text, "map "+name+" {")
		elements, _, _ = strings.Cut(elements, "\n}")
		return strings.Count(elements, ": goto from-")
	}
	options := testOptions
	want := 0
	for _, level := range []backend.Counting{backend.CountEndpoints, backend.CountNothing, backend.CountServices} {
		options.Counters = backend.CounterLimits{Counting: level}
		mustSync(t, newBackend(options, afterEach(fake, func() {
			if now := restricted(); now < want {
				t.Fatalf("at level %s, the rule of source ranges finds %d frontends, want %d", level, now, want)
			}
		})), p)
		if want = restricted(); want == 0 {
			t.Fatalf("at level %s, no frontend is restricted:\n%s", level, fake.Dump())
		}
	}
}
