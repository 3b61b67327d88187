package netif

import (
	"testing"
	"testing/fstest"
)

func TestHasIPv6(t *testing.T) {
	file := func(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }
	for _, test := range []struct {
		name string
		proc fstest.MapFS
		want bool
	}{
		{"IPv6", fstest.MapFS{"net/if_inet6": file(""), "sys/net/ipv6/conf/all/disable_ipv6": file("0\n")}, true},
		{"IPv6 switched off", fstest.MapFS{"net/if_inet6": file(""), "sys/net/ipv6/conf/all/disable_ipv6": file("1\n")}, false},
		{"a kernel without IPv6", fstest.MapFS{}, false},
		{"no such setting", fstest.MapFS{"net/if_inet6": file("")}, false},
	} {
		if got := HasIPv6(test.proc); got != test.want {
			t.Errorf("%s: got %t, want %t", test.name, got, test.want)
		}
	}
}
