package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// exitLine begins the line that ends a run.
const exitLine = "the command ended with exit code "

// machine is an emulated computer.
type machine struct {
	// root is the directory with its programs, kernel and modules; files are added, by their path in the machine.
	root  string
	files map[string]string
	// image is the directory with the tools of the container image, which are added in the folder imageTools; or "".
	image string
	// counts makes its clock count instructions, one a nanosecond: what is measured does not depend on how busy this machine is.
	counts bool
	// console receives the machine's output.
	console io.Writer
}

// run boots the machine, runs a shell script in it, and returns the script's exit code. It returns an error if the
// script did not end.
func (m *machine) run(ctx context.Context, command string) (code int, err error) {
	kernels, err := filepath.Glob(filepath.Join(m.root, "boot/vmlinuz-*"))
	if err != nil {
		return 0, err
	}
	if len(kernels) != 1 {
		return 0, fmt.Errorf("want one kernel in %s/boot, got %q", m.root, kernels)
	}
	image, err := os.CreateTemp("", "kernels-*.cpio")
	if err != nil {
		return 0, err
	}
	defer os.Remove(image.Name())
	defer image.Close()
	if err := m.writeImage(image, command); err != nil {
		return 0, err
	}
	// Other processors, and more threads, corrupt the memory of some kernels. Mitigations of the processor's weaknesses protect
	// nothing here and make every system call several times slower. A busy machine delivers the timer too late for the check of it at boot.
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg,thread=single", "-smp", "1", "-cpu", "Nehalem,-cx16", "-m", "4000",
		"-nographic", "-no-reboot", "-nic", "none", "-kernel", kernels[0], "-initrd", image.Name(),
		"-append", "console=ttyS0 quiet mitigations=off no_timer_check panic=-1 rdinit=/init")
	if m.counts {
		qemu.Args = append(qemu.Args, "-icount", "shift=0,sleep=off")
	}
	output, err := qemu.StdoutPipe()
	if err != nil {
		return 0, err
	}
	qemu.Stderr = qemu.Stdout // follow is the only writer of the console
	if err := qemu.Start(); err != nil {
		return 0, fmt.Errorf("start the emulated machine: %w; install qemu-system-x86", err)
	}
	code, found := m.follow(output)
	err = qemu.Wait()
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("the emulated machine timed out: %w", ctx.Err())
	case err != nil:
		return 0, fmt.Errorf("the emulated machine ended: %w", err)
	case !found:
		return 0, fmt.Errorf("the emulated machine ended before the command did")
	}
	return code, nil
}

// follow copies the console's output until the machine ends, and finds the exit code in it.
func (m *machine) follow(output io.Reader) (code int, found bool) {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		if _, text, ok := strings.Cut(line, exitLine); ok {
			if n, err := strconv.Atoi(text); err == nil {
				code, found = n, true
			}
		} else if line != "" {
			fmt.Fprintln(m.console, line)
		}
		if err != nil {
			return code, found
		}
	}
}
