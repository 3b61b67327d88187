//go:build linux

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Capabilities has a bit for each capability of capabilities(7), by its number in linux/capability.h.
type Capabilities uint64

// The capabilities that this program uses.
const (
	NetAdmin Capabilities = 1 << unix.CAP_NET_ADMIN
	NetRaw   Capabilities = 1 << unix.CAP_NET_RAW
)

// Effective returns the capabilities in effect.
func Effective() (Capabilities, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return Capabilities(data[0].Effective) | Capabilities(data[1].Effective)<<32, nil
}

// NetworkNamespace identifies that of the calling thread, such as net:[4026531840].
func NetworkNamespace() (string, error) {
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", fmt.Errorf("find this process's network namespace: %w", err)
	}
	return name, nil
}

// Apart is [exec.CommandContext] for a program in a new network namespace, which ends with it: changes of interfaces, rules or
// settings there do not affect the machine. Without CAP_SYS_ADMIN it cannot start: the error is EPERM.
func Apart(ctx context.Context, program string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, program, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	return command
}

// Processes returns the ids of the other daemons in this network namespace whose name has a prefix, as far as they
// are visible: a pod that does not share the host's process namespace sees only its own. A daemon has flags only; a process whose first
// argument is none is a command of the same program. An error means that there may be others: those of root say nothing to other users.
func Processes(prefix string) ([]int, error) {
	own, err := NetworkNamespace()
	if err != nil {
		return nil, err
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	var failed error
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that has ended has neither.
		command, _ := os.ReadFile(filepath.Join(folder, "comm"))
		if !strings.HasPrefix(string(command), prefix) || !daemon(folder) {
			continue
		}
		namespace, err := os.Readlink(filepath.Join(folder, "ns/net"))
		switch {
		case errors.Is(err, fs.ErrPermission):
			failed = fmt.Errorf("find the network namespace of process %d: %w", pid, err)
		case namespace == own:
			pids = append(pids, pid)
		}
	}
	return pids, failed
}

func daemon(folder string) bool {
	line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
	_, arguments, _ := strings.Cut(string(line), "\x00")
	return arguments == "" || strings.HasPrefix(arguments, "-")
}
