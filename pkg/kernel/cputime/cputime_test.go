package cputime

import (
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// TestSpent checks that the time of this thread and of programs is counted, and sleeping is not.
func TestSpent(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := Spent()
	for Spent()-before < 20*time.Millisecond {
	}
	busy := Spent()
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Skip(err)
	}
	if program := Spent() - busy; program < time.Millisecond {
		t.Errorf("a busy program took %s", program)
	}
	start, rested := time.Now(), Spent()
	time.Sleep(50 * time.Millisecond)
	if spent, passed := Spent()-rested, time.Since(start); spent > passed/2 {
		t.Errorf("asleep for %s, and spent %s", passed, spent)
	}
}
