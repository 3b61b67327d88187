//go:build linux

package cgroup

import (
	"os/exec"
	"testing"
	"time"
)

// TestKernelLimitCPU limits a program that would use a whole core.
func TestKernelLimitCPU(t *testing.T) {
	group := New(t, "cpu")
	group.LimitCPU(10)
	if n := group.Throttled(); n != 0 {
		t.Fatalf("a group without a process was limited in %d periods", n)
	}
	endless := exec.CommandContext(t.Context(), group.Wrap("/bin/sh"), "-c", "while :; do :; done")
	if err := endless.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); group.Throttled() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Error("the limit was never reached")
			break
		}
	}
	_ = endless.Process.Kill() // Wait reports that it was killed
	_ = endless.Wait()
}

// TestKernelLimitMemory limits a program that needs more memory: the kernel kills it. With a higher limit it ends by itself.
func TestKernelLimitMemory(t *testing.T) {
	group := New(t, "memory")
	const limit = 16 << 20
	run := func() error {
		// tail keeps what it has read, because it is one line.
		return exec.CommandContext(t.Context(), group.Wrap("/bin/sh"), "-c", "head -c 50000000 /dev/zero | tail -n 1 | wc -c").Run()
	}
	group.LimitMemory(limit)
	_ = run() // what the shell returns depends on which of its programs was killed
	if group.Kills() == 0 {
		t.Error("the kernel killed nothing")
	}
	if peak := group.Peak(); peak == 0 || peak > limit {
		t.Errorf("at most %d bytes were in use, want at most %d", peak, limit)
	}
	group.LimitMemory(0)
	kills := group.Kills()
	if err := run(); err != nil || group.Kills() != kills {
		t.Errorf("without a limit: %v, %d processes killed", err, group.Kills()-kills)
	}
	if peak := group.Peak(); peak <= limit {
		t.Errorf("without a limit at most %d bytes were in use, want more than %d", peak, limit)
	}
}
