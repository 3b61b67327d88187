// Package cputime measures the processor time of operations, regardless of the load of the machine.
package cputime

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// meter adds up what other threads use for an operation. An operation may be part of an outer one.
type meter struct {
	elsewhere atomic.Int64 // nanoseconds
	outer     *meter
}

type meterKey struct{}

// meterOf returns the meter of the operation that ctx belongs to, or nil.
func meterOf(ctx context.Context) *meter {
	m, _ := ctx.Value(meterKey{}).(*meter)
	return m
}

// Measure starts to measure an operation of the calling goroutine, which must be locked to its thread
// ([runtime.LockOSThread]). The operation uses the returned context. spent returns the processor time used since: that of the
// thread, that of all programs that have ended, and what was counted with [Count].
func Measure(ctx context.Context) (_ context.Context, spent func() time.Duration) {
	m := &meter{outer: meterOf(ctx)}
	before := used(unix.RUSAGE_THREAD) + used(unix.RUSAGE_CHILDREN)
	return context.WithValue(ctx, meterKey{}, m), func() time.Duration {
		return used(unix.RUSAGE_THREAD) + used(unix.RUSAGE_CHILDREN) - before + time.Duration(m.elsewhere.Load())
	}
}

// Count runs f, and adds its processor time to the operation that ctx belongs to. It is for a goroutine that works for the
// one that called [Measure].
func Count(ctx context.Context, f func() error) error {
	m := meterOf(ctx)
	if m == nil {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := used(unix.RUSAGE_THREAD)
	err := f()
	spent := used(unix.RUSAGE_THREAD) - before
	for ; m != nil; m = m.outer {
		m.elsewhere.Add(int64(spent))
	}
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
