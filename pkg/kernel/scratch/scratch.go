//go:build linux

// Package scratch runs a program in a new network namespace, which ends with it: changes of interfaces, rules or
// settings there do not affect the machine.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespace identifies a network namespace, such as net:[4026531840].
type Namespace string

// Own returns the network namespace of the calling thread.
func Own() (Namespace, error) {
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", fmt.Errorf("find this process's network namespace: %w", err)
	}
	return Namespace(name), nil
}

// Command is [exec.CommandContext] for a program in a new network namespace. Starting it needs CAP_SYS_ADMIN; [Refused]
// explains the error.
func Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, program, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	return command
}

// Refused reports whether a [Command] could not start because this process must not create a network namespace.
func Refused(err error) bool { return errors.Is(err, unix.EPERM) }
