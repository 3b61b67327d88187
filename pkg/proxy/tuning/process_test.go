package tuning

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// TestColdStart restores the garbage collector's setting afterwards, and does not change one that the user made.
func TestColdStart(t *testing.T) {
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	finished := ColdStart()
	if got := percent(); got != coldStartGC {
		t.Errorf("during the cold start: %d", got)
	}
	if finished(); percent() != 77 {
		t.Errorf("afterwards: %d", percent())
	}
	t.Setenv("GOGC", "77")
	finished = ColdStart()
	if got := percent(); got != 77 {
		t.Errorf("with GOGC set: %d", got)
	}
	finished()
}

func TestSetOOMScore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oom_score_adj")
	if err := SetOOMScore(path+"/none", -999); err == nil || !strings.Contains(err.Error(), "-999") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SetOOMScore(path, -999); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "-999" {
		t.Errorf("%q", got)
	}
}
