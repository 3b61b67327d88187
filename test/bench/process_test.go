//go:build linux

package main

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// shell runs a script of sh as a proxy, outside a lab, until the test ends.
func shell(t *testing.T, script string) *process {
	t.Helper()
	command := exec.Command("/bin/sh", "-c", script)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{command: &netns.Cmd{Cmd: command}, ended: make(chan struct{})}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // with its children
		_ = command.Wait()
	})
	return p
}

// TestCPUOfChildren checks that a proxy which waits for a program that works is not idle, and that the program's time is
// counted once, also when it exits.
func TestCPUOfChildren(t *testing.T) {
	t.Parallel()
	p := shell(t, "sh -c 'i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done' & wait; exec sleep 1000")
	const precision = 20 * time.Millisecond // of exited processes
	var last time.Duration
	var running, exited bool
	for end := time.Now().Add(time.Minute); !exited; {
		programs := childrenOf(p.command.Process.Pid)
		used, err := p.cpu()
		if err != nil {
			t.Fatal(err)
		}
		if used < last-precision {
			t.Fatalf("the CPU time fell from %v to %v", last, used)
		}
		if running = running || len(programs) > 0 && used > precision; running {
			exited = len(programs) == 0
		}
		last = max(last, used)
		if time.Now().After(end) {
			t.Fatalf("CPU time %v; counted while the program ran: %v", last, running)
		}
	}
}
