package ipt

import (
	"time"

	"golang.org/x/sys/unix"
)

// Spent is the processor time that the calling thread and all programs that ended have used so far. What is between two
// calls on one thread is the cost of what was done there, however busy the machine is.
func Spent() (spent time.Duration) {
	for _, who := range []int{unix.RUSAGE_THREAD, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if unix.Getrusage(who, &used) == nil { // it fails for a wrong who only
			spent += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return spent
}
