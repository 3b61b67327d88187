//go:build linux

package netlock

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestProcesses(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	const name = "netlock-sleeper"
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(sleep, path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pids, err := Processes(name)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(pids, []int{cmd.Process.Pid}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %v, want %d", pids, cmd.Process.Pid)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if pids, err := Processes(name); err != nil || pids != nil {
		t.Errorf("got %v, %v, want none", pids, err)
	}
}
