package cpus

import (
	"runtime"
	"testing"
	"testing/fstest"
)

// TestCounts checks both counts for the kernel's lists, and for what is not a list.
func TestCounts(t *testing.T) {
	own := runtime.NumCPU()
	for list, want := range map[string]int{"0\n": 1, "0-127\n": 128, "0-3,8,10-11\n": 7, "": own, "3-1": own, "x": own, "0-": own} {
		sys := fstest.MapFS{"devices/system/cpu/online": {Data: []byte(list)}, "devices/system/cpu/possible": {Data: []byte(list)}}
		if got := Online(sys); got != want {
			t.Errorf("%q: %d online, want %d", list, got, want)
		}
		if got, want := Possible(sys), max(want, own); got != want {
			t.Errorf("%q: %d possible, want %d", list, got, want)
		}
	}
	if online, possible := Online(fstest.MapFS{}), Possible(fstest.MapFS{}); online != own || possible != own {
		t.Errorf("without lists: %d online and %d possible, want %d", online, possible, own)
	}
}
