package nft

import (
	"runtime"
	"testing"
)

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-127": 128, "0-3,8,10-11": 7, "": 0, "x": 0, "3-1": 0, "0-": 0} {
		if got := countCPUs(list); got != want {
			t.Errorf("countCPUs(%q) = %d, want %d", list, got, want)
		}
	}
}

func TestCounterSize(t *testing.T) {
	if got := CounterSize(); got < 16*runtime.NumCPU() || got%16 != 0 {
		t.Errorf("CounterSize() = %d, which is not 16 bytes for each of at least %d processors", got, runtime.NumCPU())
	}
}
