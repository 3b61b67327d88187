package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

func fields(text string) []netip.Prefix { return prefixes(strings.Fields(text)...) }

// TestDisjoint checks which ranges are kept.
func TestDisjoint(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"10.0.0.0/8":                            "10.0.0.0/8",
		"10.1.0.0/16 10.0.0.0/8 10.2.0.1/32":    "10.0.0.0/8",
		"10.2.0.0/16 10.1.0.0/16":               "10.1.0.0/16 10.2.0.0/16",
		"10.1.2.3/16 10.1.0.0/16":               "10.1.0.0/16",
		"0.0.0.0/0 192.0.2.1/32":                "0.0.0.0/0",
		"fd00::/8 fd00::1/128 fe00::/16":        "fd00::/8 fe00::/16",
		"10.0.0.0/9 10.128.0.0/9 10.128.0.0/16": "10.0.0.0/9 10.128.0.0/9",
	} {
		if got := strings.Trim(fmt.Sprint(disjoint(fields(text))), "[]"); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

// TestAdmits checks which clients are in source ranges.
func TestAdmits(t *testing.T) {
	route := &Route{SourceRanges: disjoint(fields("10.3.0.0/16 10.1.0.0/16 10.2.0.0/24 10.2.0.7/32"))}
	for client, want := range map[string]bool{
		"0.0.0.0": false, "10.0.255.255": false, "10.1.0.0": true, "10.1.255.255": true, "10.2.0.7": true, "10.2.0.255": true,
		"10.2.1.0": false, "10.3.7.7": true, "10.4.0.0": false, "255.255.255.255": false, "::ffff:10.1.0.1": false, "fd00::1": false,
	} {
		if got := route.admits(netip.MustParseAddr(client)); got != want {
			t.Errorf("%v admit %s: %t, want %t", route.SourceRanges, client, got, want)
		}
	}
	if route := (&Route{}); !route.admits(netip.MustParseAddr("10.1.0.1")) {
		t.Error("a route without ranges admits nobody")
	}
}

// TestNarrower checks which changes of source ranges may exclude a client.
func TestNarrower(t *testing.T) {
	for _, test := range []struct {
		before, after string
		want          bool
	}{
		{"", "", false},
		{"", "10.0.0.0/8", true},
		{"10.0.0.0/8", "", false},
		{"10.0.0.0/8", "10.0.0.0/8", false},
		{"10.0.0.0/8", "10.0.0.0/8 192.0.2.0/24", false},
		{"10.1.0.0/16 10.2.0.0/16", "10.0.0.0/8", false},
		{"10.0.0.0/8", "10.1.0.0/16", true},
		{"10.1.0.0/16 10.2.0.0/16", "10.1.0.0/16", true},
		{"10.1.0.0/16", "10.2.0.0/16", true},
		{"10.1.0.0/16", "10.1.0.0/17", true},
	} {
		if got := narrower(disjoint(fields(test.before)), disjoint(fields(test.after))); got != test.want {
			t.Errorf("from %q to %q: %t, want %t", test.before, test.after, got, test.want)
		}
	}
}

// TestSourceRangesAreShared gives a Service several load balancer IPs: their routes have the same ranges in memory, because the author of a
// Service may list thousands of both.
func TestSourceRangesAreShared(t *testing.T) {
	s := wide(1, 1, 1)
	s.External = &cluster.External{LoadBalancerIPs: addrs("198.51.100.1", "198.51.100.2"), SourceRanges: prefixes("203.0.113.0/24", "192.0.2.0/24")}
	var ranges []*netip.Prefix
	for _, route := range Compute(snapshotOf(s), &Options{}, nil).Frontends.All() {
		if route.Kind == LoadBalancerIP {
			ranges = append(ranges, &route.SourceRanges[0])
		}
	}
	if len(ranges) != 2 || ranges[0] != ranges[1] {
		t.Errorf("the ranges are at %v", ranges)
	}
}
