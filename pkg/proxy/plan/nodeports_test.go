package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

func TestLoopbackFamilies(t *testing.T) {
	for entries, want := range map[string]string{
		"":                        "[]",
		"primary all":             "[]",
		"0.0.0.0/0 ::/0":          "[]",
		"192.0.2.0/24":            "[]",
		"127.0.0.5/32":            "[]",
		"localhost":               "[IPv4 IPv6]",
		"primary localhost":       "[IPv4 IPv6]",
		"127.0.0.0/8":             "[IPv4]",
		"127.0.0.1/32 10.0.0.0/8": "[IPv4]",
		"::1/128":                 "[IPv6]",
	} {
		sel, err := ParseNodePortAddresses(strings.Fields(entries))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%v", sel.LoopbackFamilies()); got != want {
			t.Errorf("%q: got %s, want %s", entries, got, want)
		}
	}
}

func TestServedOnLoopback(t *testing.T) {
	for _, test := range []struct {
		name       string
		entries    string
		routed     bool
		forwarded  []cluster.Family
		ipv4, ipv6 string
	}{
		{"not served", "all", false, nil, "[]", "[]"},
		{"routed", "all", true, nil, "[TCP UDP SCTP]", "[]"},
		{"routed, in a range", "127.0.0.0/8 2001:db8::/32", true, nil, "[TCP UDP SCTP]", "[]"},
		{"routed, and not selected", "primary", true, nil, "[]", "[]"},
		{"forwarded", "localhost", false, []cluster.Family{cluster.IPv4}, "[TCP]", "[]"},
	} {
		sel, err := ParseNodePortAddresses(strings.Fields(test.entries))
		if err != nil {
			t.Fatal(err)
		}
		sel.Loopback = test.routed
		o := &Options{NodePorts: sel, Localhost: Localhost{Reject: test.forwarded != nil, Forwarded: test.forwarded}}
		ipv4, ipv6 := fmt.Sprintf("%v", o.ServedOnLoopback(cluster.IPv4)), fmt.Sprintf("%v", o.ServedOnLoopback(cluster.IPv6))
		if ipv4 != test.ipv4 || ipv6 != test.ipv6 {
			t.Errorf("%s: got %s and %s, want %s and %s", test.name, ipv4, ipv6, test.ipv4, test.ipv6)
		}
	}
}
