package ipt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// script writes a program with these lines.
func script(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+strings.Join(lines, "\n")+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestNoPrograms checks the errors for missing and for wrong programs.
func TestNoPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := Detect(context.Background()); !errors.Is(err, ErrMissing) {
		t.Errorf("without programs: %v", err)
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore"} {
		script(t, dir+"/"+name, "echo what?")
	}
	if _, err := Open(context.Background(), IPv4, NFT); err == nil || !strings.Contains(err.Error(), "what?") {
		t.Errorf("with a program that is not iptables: %v", err)
	}
	script(t, dir+"/iptables", "echo iptables v1.8.10 '(legacy)'")
	if _, err := find(context.Background(), IPv4, NFT); !errors.Is(err, ErrMissing) {
		t.Errorf("with the other variant only: %v", err)
	}
	if found, err := find(context.Background(), IPv4, Legacy); err != nil || found.iptables != dir+"/iptables" {
		t.Errorf("behind the plain name: %+v, %v", found, err)
	}
	script(t, dir+"/iptables-restore", "echo the disk is on fire >&2", "exit 3")
	door := &programs{family: IPv4, restore: dir + "/iptables-restore"}
	var refused *RestoreError
	if err := door.Restore(context.Background(), "*nat\nCOMMIT\n"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("a program that fails: %v", err)
	}
	script(t, dir+"/iptables-restore", "/bin/sleep 8 &")
	err := door.Restore(context.Background(), "*nat\nCOMMIT\n")
	if !errors.Is(err, exec.ErrWaitDelay) || errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "its output is still open") {
		t.Errorf("a program that leaves another one behind: %v", err)
	}
	door.restore = dir + "/iptables-save/gone"
	if err := door.Restore(context.Background(), "*nat\nCOMMIT\n"); err == nil || errors.Is(err, ErrMissing) {
		t.Errorf("a program that cannot be started: %v", err)
	}
	door.restore = dir + "/gone"
	if err := door.Restore(context.Background(), "*nat\nCOMMIT\n"); !errors.Is(err, ErrMissing) {
		t.Errorf("a program that is gone: %v", err)
	}
}

// TestBrokenPrograms looks for programs where one kind fails and the other is not installed: the error is the failure.
func TestBrokenPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for _, suffix := range []string{"", "-restore", "-save"} {
		script(t, dir+"/iptables-nft"+suffix, "echo a library is missing >&2", "exit 127")
	}
	_, err := find(t.Context(), IPv4, NFT)
	if err == nil || errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "a library is missing") {
		t.Errorf("got %v", err)
	}
}

// TestLockMessages checks that only a program that gave up counts as locked out, not one that waited, got the lock and failed.
func TestLockMessages(t *testing.T) {
	path := t.TempDir() + "/iptables-restore"
	tables := &programs{family: IPv4, restore: path}
	const holds = "echo Another app is currently holding the xtables lock >&2"
	script(t, path, holds, "exit 4")
	if err := tables.Restore(t.Context(), "*nat\nCOMMIT\n"); !errors.Is(err, ErrLocked) {
		t.Errorf("a program that gave up: %v", err)
	}
	script(t, path, holds, "echo iptables-restore: line 2 failed >&2", "exit 1")
	err := tables.Restore(t.Context(), "*nat\n-A KUBE-A -j KUBE-B\nCOMMIT\n")
	if refused, ok := errors.AsType[*RestoreError](err); !ok || refused.Line != 2 {
		t.Errorf("a program that waited for the lock, and whose input was refused: %v", err)
	}
}
