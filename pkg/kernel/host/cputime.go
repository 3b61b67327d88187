//go:build linux

package host

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// elsewhere is the key of what other threads use for an operation: nanoseconds, as an *atomic.Int64.
type elsewhere struct{}

// MeasureCPU starts to measure the processor time of an operation of the calling goroutine, which must be locked to its thread
// ([runtime.LockOSThread]): that does not depend on the load of the machine. The operation uses the returned context. spent returns the
// processor time used since: that of the thread, that of all programs that have ended, and what was counted with [CountCPU].
func MeasureCPU(ctx context.Context) (_ context.Context, spent func() time.Duration) {
	var others atomic.Int64
	before := used(unix.RUSAGE_THREAD) + used(unix.RUSAGE_CHILDREN)
	return context.WithValue(ctx, elsewhere{}, &others), func() time.Duration {
		return used(unix.RUSAGE_THREAD) + used(unix.RUSAGE_CHILDREN) - before + time.Duration(others.Load())
	}
}

// CountCPU runs f, and adds its processor time to the operation that ctx belongs to. It is for a goroutine that works for the
// one that called [MeasureCPU].
func CountCPU(ctx context.Context, f func() error) error {
	others, measured := ctx.Value(elsewhere{}).(*atomic.Int64)
	if !measured {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := used(unix.RUSAGE_THREAD)
	err := f()
	others.Add(int64(used(unix.RUSAGE_THREAD) - before))
	return err
}

// used returns the processor time of the calling thread, or of all programs that have ended.
func used(by int) time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(by, &usage) != nil { // it fails only for an invalid argument
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
