package trace

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func to(addr string, protocol byte, port uint16) Destination {
	return Destination{netip.MustParseAddr(addr), protocol, port}
}

// TestFilter checks which filters are refused.
func TestFilter(t *testing.T) {
	for _, test := range []struct {
		filter Filter
		err    string
	}{
		{Filter{To: []Destination{to("10.96.0.1", 6, 80), to("fd00::1", 0, 0), to("0.0.0.0", 17, 53)}, PerSecond: 1}, ""},
		{Filter{From: netip.MustParsePrefix("10.0.0.0/8"), PerSecond: 1}, ""},
		{Filter{PerSecond: 1}, "neither a source nor a destination"},
		{Filter{To: slices.Repeat([]Destination{to("10.96.0.1", 6, 80)}, maxDestinations+1), PerSecond: 1}, "129 addresses and ports are more than 128"},
	} {
		err := test.filter.Check()
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%+v: %v, want %q", test.filter, err, test.err)
		}
	}
}
