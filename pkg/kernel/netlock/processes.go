//go:build linux

package netlock

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Processes returns the ids of the other processes in this network namespace whose name has a prefix, as far as they
// are visible: a pod that does not share the host's process namespace sees only its own.
func Processes(prefix string) ([]int, error) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("find this process's network namespace: %w", err)
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that has ended has neither.
		command, _ := os.ReadFile(filepath.Join(folder, "comm"))
		namespace, _ := os.Readlink(filepath.Join(folder, "ns/net"))
		if strings.HasPrefix(string(command), prefix) && namespace == own {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
