package nftables

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// visit adds clients to every pool with affinity, as packets would.
func visit(r *clusters.Random, b *Backend) {
	for _, f := range b.families {
		if f.have == nil {
			continue
		}
		for pool, m := range f.have.holds.pools.All() {
			for range 3 {
				if len(m.endpoints) > 0 {
					learn(f, pool, r.IntN(50), m.endpoints[r.IntN(len(m.endpoints))])
				}
			}
		}
	}
}

// learn adds a client of an endpoint.
func learn(f *family, pool poolID, client int, endpoint netip.AddrPort) {
	e := clientElement(f, pool, client, endpoint)
	f.table.(*nfttest.Fake).Learn(pool.clients(), &e)
}

// clientElement returns the element of an affinity map for a client of an endpoint.
func clientElement(f *family, pool poolID, client int, endpoint netip.AddrPort) nf.Element {
	source := clusters.AddrAt(192<<24|168<<16, client)
	if f.schema.family == cluster.IPv6 {
		source = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", client))
	}
	e := member(pool, endpoint)
	e.frontend = plan.Frontend{Addr: source}
	return f.schema.clients(pool).encode(&e, new(buffer))
}

// clients returns the content of an affinity map: the endpoint of each client.
func clients(t *testing.T, f *family, pool poolID) map[string]netip.AddrPort {
	t.Helper()
	found := map[string]netip.AddrPort{}
	for raw, err := range f.table.Elements(context.Background(), pool.clients()) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := f.schema.clients(pool).decode(&raw, new(buffer))
		if err != nil {
			t.Fatal(err)
		}
		found[string(raw.Key)] = e.endpoint()
	}
	return found
}

// fill adds clients in batches of a thousand.
func fill(a *output, pool poolID, e *nf.Element) {
	a.batch.Add(pool.clients(), e)
	if a.batch.Len() >= 1000 {
		_ = a.commit() // the last one records the result
	}
}

// TestTargetNames parses the names of targets of every kind.
func TestTargetNames(t *testing.T) {
	for _, want := range []target{
		{kind: pick, n: 1}, {kind: pickLocal, n: 3}, {kind: pick, nodePort: true, n: 1000}, {kind: internal, n: 7},
		{kind: external, nodePort: true, n: 2}, {kind: local, n: 3}, {kind: local, n: 3, m: 2, nodePort: true},
		{kind: pick, n: 3, seconds: 1, id: 0}, {kind: pickLocal, n: 3, seconds: 86_400, id: math.MaxUint64},
		{kind: local, n: 3, m: 2, seconds: 10_800, id: 0x1234567890123456, nodePort: true},
		{kind: from, id: 0x1000000000000000}, {kind: from}, {kind: remember, seconds: 10, id: 42},
	} {
		if got, err := parseTarget(want.name()); err != nil || got != want {
			t.Errorf("%s parsed as %+v, %v; want %+v", want.name(), got, err, want)
		}
	}
	for _, name := range []string{"", "pick", "pick-", "pick-03", "pick-x", "pick-3-4", "from-", "from-1", "remember-10", "local-3",
		"pick-3-sticky-10", "pick-3-sticky-0-0000000000000001", "nodeport-from-0000000000000001", "services", "reject"} {
		if got, err := parseTarget(name); err == nil {
			t.Errorf("%q parsed as %+v", name, got)
		}
	}
}

// TestStickyPatchSize checks the cost of changes with affinity and source ranges.
func TestStickyPatchSize(t *testing.T) {
	c := clusters.NewSized(1000, 3)
	b, _ := fakes()
	s := func(seconds int, ranges ...string) {
		service, _ := c.Services.Get(cluster.ServiceName{Namespace: "default", Name: "service-5"})
		changed := *service
		changed.Affinity = time.Duration(seconds) * time.Second
		changed.External = &cluster.External{LoadBalancerIPs: []netip.Addr{clusters.AddrAt(192<<24, 1)}}
		for _, text := range ranges {
			changed.External.SourceRanges = append(changed.External.SourceRanges, netip.MustParsePrefix(text))
		}
		c.Services.Set(changed.Name, &changed)
	}
	s(0)
	mustSync(t, b, c.Plan())
	for _, step := range []struct {
		name            string
		change          func()
		elements, rules int
	}{
		// Two verdicts that change, two that remember, three members and their addresses; chains for cluster IP and load balancer IP.
		{"affinity on", func() { s(60) }, 2*2 + 2 + 3 + 3, 2 + 2 + 2 + 3},
		// A verdict that changes, and one that checks sources; a chain for both.
		{"sources restricted", func() { s(60, "10.0.0.0/8", "fd00::/8") }, 2 + 1, 2 + 1},
		{"other sources", func() { s(60, "10.0.0.0/9", "fd00::/8") }, 2, 1},
		{"sources open", func() { s(60) }, 2 + 1, 0},
		{"other timeout", func() { s(90) }, 2*2 + 2*2, 2 + 2 + 2 + 3},
		{"affinity off", func() { s(0) }, 2*2 + 2 + 3 + 3, 2},
	} {
		step.change()
		elements, rules := mustSync(t, b, c.Plan())
		if elements != step.elements || rules != step.rules {
			t.Errorf("%s: %d element operations and %d rules, want %d and %d", step.name, elements, rules, step.elements, step.rules)
		}
	}
}

// TestSharedSourceRanges restarts with two Services that share source ranges, and changes one of them and then the
// node, so that the other's chain is rewritten: it must contain the ranges, which are not read from the kernel.
func TestSharedSourceRanges(t *testing.T) {
	c := clusters.NewSized(2, 3)
	for number := range 2 {
		service, _ := c.Services.Get(clusters.NameAt(number))
		changed := *service
		changed.External = &cluster.External{LoadBalancerIPs: []netip.Addr{clusters.AddrAt(192<<24, 1+number)},
			SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		c.Services.Set(changed.Name, &changed)
	}
	b, tables := fakes()
	mustSync(t, b, c.Plan())
	b = newBackend(testOptions, tables[0], tables[1])
	mustSync(t, b, c.Plan())
	c.Set(0, 2)
	mustSync(t, b, c.Plan())
	c.ServiceCIDRs = append(c.ServiceCIDRs, netip.MustParsePrefix("10.97.0.0/16"))
	mustSync(t, b, c.Plan())
	holds(t, b, c.Plan())
	if text := tables[0].Dump(); !strings.Contains(text, "ip saddr != 10.0.0.0/8 drop") && !strings.Contains(text, "ip saddr != { 10.0.0.0/8 } drop") {
		t.Errorf("the source ranges are missing:\n%s", text)
	}
}

// TestForgetInParts replaces an endpoint of several Services with full maps: no Sync and no Check reads and writes more than one
// part and one full map. The Sync in which an endpoint of another Service leaves searches that one's small map, however many
// are waiting.
func TestForgetInParts(t *testing.T) {
	const many = 3
	c := clusters.NewSized(many+1, 3)
	set := func(number, endpoints int) {
		c.Set(number, endpoints)
		service, _ := c.Services.Get(clusters.NameAt(number))
		service.Affinity = time.Minute
	}
	table := newHooked()
	b := newBackend(testOptions, table)
	f := b.families[0]
	pools := map[int]poolID{}
	for number := range many + 1 {
		set(number, 3)
		pools[number] = poolOf(&plan.Route{Name: fmt.Sprint("default/service-", number), Frontend: plan.Frontend{Protocol: cluster.TCP}})
	}
	mustSync(t, b, c.Plan())
	for number, pool := range pools {
		m, _ := f.have.holds.pools.Get(pool)
		for client := range mapSizes[0] {
			if number < many || client < 10 {
				e := clientElement(f, pool, client, m.endpoints[0])
				table.Learn(pool.clients(), &e)
			}
		}
		set(number, -3)
	}
	last, _ := c.Services.Get(clusters.NameAt(many))
	set(many, 3)
	limited := func(what string, call func()) {
		t.Helper()
		table.used = 0
		call()
		if most := mapSizes[0] + forgetPart + 100; table.used > most {
			t.Errorf("%s reads and writes %d elements, want at most %d", what, table.used, most)
		}
	}
	limited("the Sync without the endpoints", func() { mustSync(t, b, c.Plan()) })
	c.Services.Set(last.Name, last)
	limited("the Sync without one of the small map", func() { mustSync(t, b, c.Plan()) })
	if n := len(clients(t, f, pools[many])); n != 0 || !b.CheckSoon() {
		t.Errorf("after its Sync the small map has %d clients, want 0; others are waiting: %v", n, b.CheckSoon())
	}
	for b.CheckSoon() {
		limited("a Check", func() {
			if drifts, err := b.Check(t.Context()); err != nil || len(drifts) > 0 {
				t.Fatal(drifts, err)
			}
		})
	}
	holds(t, b, c.Plan())
}

// TestClientsAreCounted counts the clients of the fullest map, on kernels that report the sizes of maps and on others, on which the
// maps are read, but not each time.
func TestClientsAreCounted(t *testing.T) {
	c := clusters.NewSized(2, 3)
	for number := range 2 {
		service, _ := c.Services.Get(clusters.NameAt(number))
		service.Affinity = time.Minute
	}
	b, fake := oneFake()
	f := b.families[0]
	mustSync(t, b, c.Plan())
	number := 0
	for pool, m := range f.have.holds.pools.All() {
		for client := range 30 * number {
			if len(m.endpoints) > 0 {
				learn(f, pool, client, m.endpoints[0])
			}
		}
		number++
	}
	for _, countless := range []bool{false, true} {
		table := &hooked{Fake: fake, countless: countless}
		var counter clientCounter
		for round := range 2 {
			table.used = 0
			var got backend.Clients
			if err := counter.count(t.Context(), table, &got); err != nil || got.Fullest != 60.0/float64(mapSizes[0]) {
				t.Errorf("without sizes %t: %+v, %v, want 60 clients in the fullest map", countless, got, err)
			}
			if reads := table.used > 0; reads != (countless && round == 0) {
				t.Errorf("without sizes %t, round %d: %d elements were read", countless, round, table.used)
			}
			counter.until = counter.until.Add(time.Hour * time.Duration(min(1, table.used))) // the machine may be slow
		}
	}
}
