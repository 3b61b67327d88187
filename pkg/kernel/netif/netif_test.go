//go:build linux

package netif

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func texts(addrs []netip.Addr) []string {
	list := []string{}
	for _, addr := range addrs {
		list = append(list, addr.String())
	}
	return list
}

// TestPrimaryFirst covers cases that are hard to set up in a network namespace.
func TestPrimaryFirst(t *testing.T) {
	tests := []struct {
		name                 string
		addrs, sources, want []string
	}{
		{"no addresses", nil, []string{"192.0.2.9"}, nil},
		{"source that no interface has", []string{"10.0.0.1", "10.0.0.2"}, []string{"192.0.2.9"}, []string{"10.0.0.1", "10.0.0.2"}},
		{"only IPv6", []string{"fd00::1", "fd00::2"}, []string{"fd00::2"}, []string{"fd00::2", "fd00::1"}},
		{"IPv6 without a default route", []string{"10.0.0.1", "192.0.2.1", "fd00::1", "fd00::9"}, []string{"192.0.2.1"}, []string{"192.0.2.1", "fd00::9", "10.0.0.1", "fd00::1"}},
		{"both", []string{"10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"}, []string{"10.0.0.2", "fd00::2"}, []string{"10.0.0.2", "fd00::2", "10.0.0.1", "fd00::1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			links := map[netip.Addr]int{}
			for i, a := range addrs("10.0.0.1", "fd00::1", "192.0.2.1", "fd00::9") {
				links[a] = 1 + i/2
			}
			got := primaryFirst(addrs(test.addrs...), links, addrs(test.sources...))
			if diff := cmp.Diff(append([]string{}, test.want...), texts(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
