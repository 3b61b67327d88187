// Package cpus counts the processors of the machine.
package cpus

import (
	"io/fs"
	"runtime"
	"strconv"
	"strings"
)

// Online returns the number of processors in use. sys is /sys. The processors that this process may use, which may be fewer,
// do not determine how many connections the machine has; they are the result only if the kernel's list cannot be read.
func Online(sys fs.FS) int { return count(sys, "online") }

// Possible returns the number of processors that the machine may have, including those that can be plugged in later: the kernel
// allocates per-CPU memory for all of them. sys is /sys.
func Possible(sys fs.FS) int { return max(count(sys, "possible"), runtime.NumCPU()) }

// count counts the processors in one of the kernel's lists, such as "0-3,8".
func count(sys fs.FS, list string) int {
	text, err := fs.ReadFile(sys, "devices/system/cpu/"+list)
	if err != nil {
		return runtime.NumCPU()
	}
	n := 0
	for span := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, isRange := strings.Cut(span, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from {
			return runtime.NumCPU()
		}
		n += to - from + 1
	}
	return n
}
