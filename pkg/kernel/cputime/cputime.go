// Package cputime measures processor time.
package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Spent returns the processor time that the calling thread and all finished programs have used so far. The difference
// between two calls on one thread (see [runtime.LockOSThread]) is the cost of what was done in between, regardless of
// the load of the machine.
func Spent() (spent time.Duration) {
	for _, who := range []int{unix.RUSAGE_THREAD, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if unix.Getrusage(who, &used) == nil { // it fails only for an invalid who
			spent += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return spent
}
