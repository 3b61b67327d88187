package app

import (
	"runtime/debug"
	"testing"
)

// TestLoading gives the collector back as it was, and leaves it alone where somebody has set it.
func TestLoading(t *testing.T) {
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	loaded := loading()
	if got := percent(); got != loadingGC {
		t.Errorf("while it loads: %d", got)
	}
	if loaded(); percent() != 77 {
		t.Errorf("afterwards: %d", percent())
	}
	t.Setenv("GOGC", "77")
	loaded = loading()
	if got := percent(); got != 77 {
		t.Errorf("although GOGC is set: %d", got)
	}
	loaded()
}
