package nft

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// possibleCPUs lists the processors that the machine may have, also those that can be plugged in later: per-CPU memory is
// allocated for all of them.
const possibleCPUs = "/sys/devices/system/cpu/possible"

// counterPerCPU is the size of a counter for one processor: struct nft_counter, two numbers of 64 bits.
const counterPerCPU = 16

// CounterSize returns the memory that the kernel allocates for one counter, in bytes.
func CounterSize() int {
	text, err := os.ReadFile(possibleCPUs)
	if err != nil {
		return counterPerCPU * runtime.NumCPU()
	}
	return counterPerCPU * max(countCPUs(strings.TrimSpace(string(text))), runtime.NumCPU())
}

// countCPUs returns the number of processors in a list like 0-3,8,10-11; 0 if it cannot be read.
func countCPUs(list string) (count int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from {
			return 0
		}
		count += to - from + 1
	}
	return count
}
