package nfttest

import (
	"strings"
	"testing"
)

// TestFields prints and parses keys of every type.
func TestFields(t *testing.T) {
	for _, c := range []struct{ types, text string }{
		{"ip daddr . meta l4proto . th dport . numgen random mod 2", "10.96.0.1 . tcp . 80 . 3"},
		{"ip6 saddr . inet_proto . inet_service", "fd00::1 . sctp . 65535"},
		{"inet_service", "53"},
		{"meta l4proto . th dport", "17 . 53"},
		{"mark . iface_index", "0x00004000 . 7"},
		{"ifname . ipv4_addr", `"eth0" . 0.0.0.0`},
	} {
		fs, err := parseTypes(c.types)
		if err != nil {
			t.Fatal(err)
		}
		b, err := parseFields(fs, strings.Split(c.text, " . "))
		if err != nil || len(b) != width(fs) {
			t.Fatalf("%q became %x, %v", c.text, b, err)
		}
		want := strings.Replace(c.text, "17 .", "udp .", 1)
		if got := formatFields(fs, b); got != want {
			t.Errorf("%q became %q", c.text, got)
		}
		if got := formatFields(fs, b[:len(b)-1]); !strings.HasPrefix(got, "0x") {
			t.Errorf("a key that is too short is printed as %q", got)
		}
	}
	for _, text := range []string{"fd00::1", "10.0.0", "", "10.0.0.1 . 80"} {
		if b, err := parseFields([]field{fieldIPv4}, strings.Split(text, " . ")); err == nil {
			t.Errorf("%q was parsed to %x", text, b)
		}
	}
}
