package ipt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestNoPrograms checks the errors for missing and for wrong programs.
func TestNoPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := Detect(context.Background()); !errors.Is(err, ErrMissing) {
		t.Errorf("without programs: %v", err)
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore"} {
		if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\necho what?\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(context.Background(), IPv4, NFT); err == nil || !strings.Contains(err.Error(), "what?") {
		t.Errorf("with a program that is not iptables: %v", err)
	}
	if err := os.WriteFile(dir+"/iptables", []byte("#!/bin/sh\necho iptables v1.8.10 '(legacy)'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := find(context.Background(), IPv4, NFT); !errors.Is(err, ErrMissing) {
		t.Errorf("with the other variant only: %v", err)
	}
	if found, err := find(context.Background(), IPv4, Legacy); err != nil || found.iptables != dir+"/iptables" {
		t.Errorf("behind the plain name: %+v, %v", found, err)
	}
	if err := os.WriteFile(dir+"/iptables-restore", []byte("#!/bin/sh\necho the disk is on fire >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	door := &kernelTables{family: IPv4, programs: programs{restore: dir + "/iptables-restore"}}
	var refused *RestoreError
	if err := door.Restore(context.Background(), "*nat\nCOMMIT\n"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("a program that fails: %v", err)
	}
	if err := os.WriteFile(dir+"/iptables-restore", []byte("#!/bin/sh\n/bin/sleep 3 &\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := door.Restore(context.Background(), "*nat\nCOMMIT\n")
	if !errors.Is(err, exec.ErrWaitDelay) || errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "its output is still open") {
		t.Errorf("a program that leaves another one behind: %v", err)
	}
	door.programs.restore = dir + "/iptables-save/gone"
	if err := door.Restore(context.Background(), "*nat\nCOMMIT\n"); err == nil || errors.Is(err, ErrMissing) {
		t.Errorf("a program that cannot be started: %v", err)
	}
	door.programs.restore = dir + "/gone"
	if err := door.Restore(context.Background(), "*nat\nCOMMIT\n"); !errors.Is(err, ErrMissing) {
		t.Errorf("a program that is gone: %v", err)
	}
}
