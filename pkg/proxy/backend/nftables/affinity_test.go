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
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// visit has clients come to every sticky pool, as packets would write it.
func visit(r *clusters.Random, b *Backend) {
	for _, f := range b.families {
		if f.have == nil {
			continue
		}
		for pool, m := range f.have.pools.All() {
			for range 3 {
				learn(f, m.seconds, pool, r.IntN(50), m.endpoints[r.IntN(len(m.endpoints))])
			}
		}
	}
}

// learn sends a client to an endpoint.
func learn(f *family, seconds timeout, pool poolID, client int, endpoint netip.AddrPort) {
	f.table.(*nft.Fake).Learn(seconds.name(), &nft.Element{Key: clientKey(f.is, pool, client), Value: appendEndpoint(nil, endpoint)})
}

func clientKey(family cluster.Family, pool poolID, client int) []byte {
	source := clusters.AddrAt(192<<24|168<<16, client)
	if family == cluster.IPv6 {
		source = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", client))
	}
	return appendPool(append(appendAddr(nil, source), byte(cluster.TCP), 0, 0, 0), pool)
}

// clients lists an affinity map: to which endpoint each client goes.
func clients(t *testing.T, f *family, seconds timeout) map[string]netip.AddrPort {
	t.Helper()
	found := map[string]netip.AddrPort{}
	for e, err := range f.table.Elements(context.Background(), seconds.name()) {
		if err != nil {
			t.Fatal(err)
		}
		if found[string(e.Key)], err = (decoder{f.is}).endpoint(e.Value); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// fill writes a client, a thousand at a time.
func fill(a *applier, seconds timeout, key []byte, endpoint netip.AddrPort) {
	a.batch.Add(seconds.name(), &nft.Element{Key: key, Value: appendEndpoint(nil, endpoint)})
	if a.batch.Len() >= 1000 {
		_ = a.commit() // the last one tells
	}
}

// TestTargetNames reads every kind of name back.
func TestTargetNames(t *testing.T) {
	for _, want := range []target{
		{kind: pick, n: 1}, {kind: pickLocal, n: 3}, {kind: pick, nodePort: true, n: 1000}, {kind: internal, n: 7},
		{kind: external, nodePort: true, n: 2}, {kind: local, n: 3}, {kind: local, n: 3, m: 2, nodePort: true},
		{kind: pick, n: 3, seconds: 1, id: 0}, {kind: pickLocal, n: 3, seconds: 86_400, id: math.MaxUint64},
		{kind: local, n: 3, m: 2, seconds: 10_800, id: 0x1234567890123456, nodePort: true},
		{kind: from, id: 0x1000000000000000}, {kind: from}, {kind: remember, seconds: 10, id: 42},
	} {
		if got, err := parseTarget(want.name()); err != nil || got != want {
			t.Errorf("%s is read as %+v, %v; want %+v", want.name(), got, err, want)
		}
	}
	for _, name := range []string{"", "pick", "pick-", "pick-03", "pick-x", "pick-3-4", "from-", "from-1", "remember-10", "local-3",
		"pick-3-sticky-10", "pick-3-sticky-0-0000000000000001", "nodeport-from-0000000000000001", "services", "reject"} {
		if got, err := parseTarget(name); err == nil {
			t.Errorf("%q is read as %+v", name, got)
		}
	}
}

// TestDisjoint leaves of each list what it lets in.
func TestDisjoint(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8":                            "10.0.0.0/8",
		"10.1.0.0/16 10.0.0.0/8 10.2.0.1/32":    "10.0.0.0/8",
		"10.2.0.0/16 10.1.0.0/16":               "10.1.0.0/16 10.2.0.0/16",
		"10.1.2.3/16 10.1.0.0/16":               "10.1.0.0/16",
		"0.0.0.0/0 192.0.2.1/32":                "0.0.0.0/0",
		"fd00::/8 fd00::1/128 fe00::/16":        "fd00::/8 fe00::/16",
		"10.0.0.0/9 10.128.0.0/9 10.128.0.0/16": "10.0.0.0/9 10.128.0.0/9",
	} {
		var ranges []netip.Prefix
		for field := range strings.FieldsSeq(text) {
			ranges = append(ranges, netip.MustParsePrefix(field))
		}
		if got := strings.Trim(fmt.Sprint(disjoint(ranges)), "[]"); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

// TestStickyPatchSize fixes what a change costs where clients are remembered and sources restricted.
func TestStickyPatchSize(t *testing.T) {
	c := clusters.NewSized(1000, 3)
	b, _ := fakes()
	s := func(seconds int, ranges ...string) {
		service, _ := c.Services.Get(cluster.ServiceName{Namespace: "default", Name: "service-5"})
		changed := *service
		changed.Affinity, changed.SourceRanges = time.Duration(seconds)*time.Second, nil
		changed.LoadBalancerIPs = []netip.Addr{clusters.AddrAt(192<<24, 1)}
		for _, text := range ranges {
			changed.SourceRanges = append(changed.SourceRanges, netip.MustParsePrefix(text))
		}
		c.Services.Set(changed.Name, &changed)
	}
	s(0)
	sync(t, b, c.Plan())
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
		elements, rules := sync(t, b, c.Plan())
		if elements != step.elements || rules != step.rules {
			t.Errorf("%s: %d element operations and %d rules, want %d and %d", step.name, elements, rules, step.elements, step.rules)
		}
	}
}
