package node

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestFamilies(t *testing.T) {
	const both, one = true, false // whether the machine has IPv6
	for _, test := range []struct {
		policy  FamilyPolicy
		given   string
		hasIPv6 bool
		want    string // families, or a part of the error
	}{
		{"", "", both, "[IPv4 IPv6]"},
		{"", "2001:db8::1", both, "[IPv6 IPv4]"},
		{"", "192.0.2.1", both, "[IPv4 IPv6]"},
		{"", "", one, "[IPv4]"},
		{"", "2001:db8::1", one, "makes IPv6 the primary address family, which this machine does not have"},
		{RequireDualStack, "", both, "[IPv4 IPv6]"},
		{RequireDualStack, "", one, "ipFamilyPolicy is RequireDualStack, and this machine does not have IPv6"},
		{SingleStack, "", one, "[IPv4]"},
		{SingleStack, "", both, "[IPv4 IPv6]"}, // until the primary one is known
		{SingleStack, "2001:db8::1", both, "[IPv6]"},
		{SingleStack, "2001:db8::1", one, "makes IPv6 the primary"},
	} {
		got, err := Families(test.hasIPv6, test.policy, addrs(strings.Fields(test.given)...))
		if err == nil && fmt.Sprintf("%v", got) != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("policy %q, given %q, IPv6 %t: got %v, %v; want %s", test.policy, test.given, test.hasIPv6, got, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "%!") {
			t.Errorf("the error is badly made: %v", err)
		}
	}
}
