//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCPUOfChildren checks that a proxy which waits for a program that works is not idle, and that the program's time is
// counted once, also when it exits.
func TestCPUOfChildren(t *testing.T) {
	t.Parallel()
	enough := filepath.Join(t.TempDir(), "enough")
	p := shell(t, "sh -c 'while [ ! -e "+enough+" ]; do :; done' & wait; exec sleep 1000")
	const precision = 20 * time.Millisecond // of exited processes
	var last time.Duration
	until := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
			used, err := p.cpu()
			if err != nil {
				t.Fatal(err)
			}
			if used < last-precision || time.Now().After(end) {
				t.Fatalf("%s: the CPU time is %v after %v", what, used, last)
			}
			last = max(last, used)
		}
	}
	until("a program runs", func() bool { return last > 5*precision })
	if err := os.WriteFile(enough, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until("it exits", func() bool { return len(childrenOf(p.command.Process.Pid)) == 0 })
	if used, err := p.cpu(); err != nil || used < last-precision {
		t.Errorf("after its exit the CPU time is %v, %v, before it was %v", used, err, last)
	}
}
