//go:build linux

package cli

import (
	"net"
	"testing"
)

// TestConnects finds what distinguishes the namespace of a node from a new one.
func TestConnects(t *testing.T) {
	for _, test := range []struct {
		link net.Interface
		want bool
	}{
		{net.Interface{Name: "lo", Flags: net.FlagLoopback}, false},
		{net.Interface{Name: "lo", Flags: net.FlagLoopback | net.FlagUp}, false},
		{net.Interface{Name: "tunl0"}, false},
		{net.Interface{Name: "sit0", Flags: net.FlagPointToPoint}, false},
		{net.Interface{Name: "eth0", Flags: net.FlagUp | net.FlagBroadcast}, true},
	} {
		if got := connects(test.link); got != test.want {
			t.Errorf("%s (%v): %v, want %v", test.link.Name, test.link.Flags, got, test.want)
		}
	}
}
