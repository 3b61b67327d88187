// Package host is the door to this machine and this process: processors and the time they spend, settings below /proc/sys, IPv6,
// capabilities, and the network namespace with who else is in it, and whose its TCP connections are.
package host

import (
	"io/fs"
	"runtime"
	"strings"

	"k8s.io/utils/cpuset"
)

// HasIPv6 reports whether the machine whose /proc is given can serve IPv6: its kernel has it, and it is not disabled.
func HasIPv6(proc fs.FS) bool {
	_, err := fs.Stat(proc, "net/if_inet6")
	disabled, unknown := fs.ReadFile(proc, "sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && unknown == nil && strings.TrimSpace(string(disabled)) != "1"
}

// OnlineCPUs returns the number of processors in use. sys is /sys. The processors that this process may use, which may be fewer,
// do not determine how many connections the machine has; they are the result only if the kernel's list cannot be read.
func OnlineCPUs(sys fs.FS) int { return count(sys, "online") }

// PossibleCPUs returns the number of processors that the machine may have, including those that can be plugged in later: the kernel
// allocates per-CPU memory for all of them. sys is /sys.
func PossibleCPUs(sys fs.FS) int { return max(count(sys, "possible"), runtime.NumCPU()) }

// count counts the processors in one of the kernel's lists, such as "0-3,8".
func count(sys fs.FS, list string) int {
	text, err := fs.ReadFile(sys, "devices/system/cpu/"+list)
	if err != nil {
		return runtime.NumCPU()
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil || set.IsEmpty() {
		return runtime.NumCPU()
	}
	return set.Size()
}
