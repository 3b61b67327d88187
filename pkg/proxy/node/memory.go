package node

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is the share of the control group's memory limit, in percent, that Go's memory may use before it is collected
// as often as necessary. The rest is for what counts too and Go does not know of: the elements of the kernel's sets, up to a
// third of all memory in large clusters, and the programs of iptables mode. With 80 % a cluster of 250,000 endpoints did not
// fit into less memory than without a limit (TestKernelMemoryLimit).
const memoryShare = 60

// LimitMemory makes Go collect garbage in time when the memory limit of this process's control group comes near, instead of
// being killed: at Go's default the heap may grow to twice what is in use. root is the root of the file system. The results
// are in bytes, and 0 if there is no limit, or if the user set GOMEMLIMIT, which is not changed.
func LimitMemory(root fs.FS) (group, set int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0, 0
	}
	group = groupLimit(root)
	if group == 0 {
		return 0, 0
	}
	set = group / 100 * memoryShare
	debug.SetMemoryLimit(set)
	return group, set
}

// groupLimit returns the smallest memory limit of the control group of this process and those around it, in bytes; 0 if
// there is none. A container sees its own group as the root, or as a path that does not exist for it.
func groupLimit(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	smallest := int64(math.MaxInt64)
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		var mount, file string
		switch {
		case fields[0] == "0" && fields[1] == "": // version 2
			mount, file = "sys/fs/cgroup", "memory.max"
		case fields[1] == "memory": // version 1
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
			if limit, ok := readLimit(root, path.Join(mount, at, file)); ok {
				smallest = min(smallest, limit)
			}
			if at == "/" {
				break
			}
		}
	}
	if smallest > noLimit {
		return 0
	}
	return smallest
}

// noLimit is less than what version 1 writes if there is no limit, the greatest multiple of the page size, and more than any
// machine has.
const noLimit = math.MaxInt64 / 2

// readLimit reads a limit; ok is false if there is none.
func readLimit(root fs.FS, name string) (limit int64, ok bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	limit, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is none
	return limit, err == nil && limit > 0
}
