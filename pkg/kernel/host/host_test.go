package host

import (
	"runtime"
	"testing"
	"testing/fstest"
)

// TestCPUs checks both counts for the kernel's lists, and for what is not a list.
func TestCPUs(t *testing.T) {
	own := runtime.NumCPU()
	for list, want := range map[string]int{"0\n": 1, "0-127\n": 128, "0-3,8,10-11\n": 7, "": own, "3-1": own, "x": own, "0-": own} {
		sys := fstest.MapFS{"devices/system/cpu/online": {Data: []byte(list)}, "devices/system/cpu/possible": {Data: []byte(list)}}
		if got := OnlineCPUs(sys); got != want {
			t.Errorf("%q: %d online, want %d", list, got, want)
		}
		if got, want := PossibleCPUs(sys), max(want, own); got != want {
			t.Errorf("%q: %d possible, want %d", list, got, want)
		}
	}
	if online, possible := OnlineCPUs(fstest.MapFS{}), PossibleCPUs(fstest.MapFS{}); online != own || possible != own {
		t.Errorf("without lists: %d online and %d possible, want %d", online, possible, own)
	}
}

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
