package ipt

import (
	"time"

	"golang.org/x/sys/unix"
)

// Spent returns the processor time that the calling thread and all ended child processes have used so far. The difference
// between two calls on one thread is the cost of the work in between, however busy the machine is.
func Spent() (spent time.Duration) {
	for _, who := range []int{unix.RUSAGE_THREAD, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if unix.Getrusage(who, &used) == nil { // it fails only for a wrong who
			spent += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return spent
}
