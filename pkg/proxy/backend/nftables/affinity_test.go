package nftables

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
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
				learn(f, m.seconds, pool, r.IntN(50), m.endpoints[r.IntN(len(m.endpoints))])
			}
		}
	}
}

// learn adds a client of an endpoint.
func learn(f *family, seconds timeout, pool poolID, client int, endpoint netip.AddrPort) {
	e := clientElement(f, seconds, pool, client, endpoint)
	f.table.(*nft.Fake).Learn(seconds.name(), &e)
}

// clientElement returns the element of an affinity map for a client of an endpoint.
func clientElement(f *family, seconds timeout, pool poolID, client int, endpoint netip.AddrPort) nft.Element {
	source := clusters.AddrAt(192<<24|168<<16, client)
	if f.schema.family == cluster.IPv6 {
		source = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", client))
	}
	e := member(pool, endpoint)
	e.frontend = plan.Frontend{Addr: source, Protocol: cluster.TCP}
	return f.schema.clients(seconds).encode(&e, new(space))
}

// clients returns the content of an affinity map: the endpoint of each client.
func clients(t *testing.T, f *family, seconds timeout) map[string]netip.AddrPort {
	t.Helper()
	found := map[string]netip.AddrPort{}
	for raw, err := range f.table.Elements(context.Background(), seconds.name()) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := f.schema.clients(seconds).decode(&raw, new(space))
		if err != nil {
			t.Fatal(err)
		}
		found[string(raw.Key)] = e.endpoint()
	}
	return found
}

// fill adds clients in batches of a thousand.
func fill(a *output, seconds timeout, e *nft.Element) {
	a.batch.Add(seconds.name(), e)
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
		// Two verdicts that change, two that remember, three members; chains for cluster IP and load balancer IP.
		{"affinity on", func() { s(60) }, 2*2 + 2 + 3, 2 + 2 + 2 + 2},
		{"sources restricted", func() { s(60, "10.0.0.0/8", "fd00::/8") }, 1, 1},
		{"other sources", func() { s(60, "10.0.0.0/9", "fd00::/8") }, 2, 1},
		{"sources open", func() { s(60) }, 1, 0},
		{"other timeout", func() { s(90) }, 2*2 + 2*2, 2 + 2 + 2 + 2},
		{"affinity off", func() { s(0) }, 2*2 + 2 + 3, 2},
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
	b = New(testOptions, tables[0], tables[1])
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
