package netlink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readAttempts is how often Retry reads.
	readAttempts = 6
	// readPause is the pause before the second attempt; it doubles each time.
	readPause = 20 * time.Millisecond
)

// Retry calls read until it returns something other than ErrInterrupted, at most 6 times within a second.
func Retry(ctx context.Context, read func() error) error {
	for n := range readAttempts {
		if n > 0 && !sleep(ctx, readPause<<(n-1)) {
			return context.Cause(ctx)
		}
		if err := read(); !errors.Is(err, ErrInterrupted) {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row: try later", ErrInterrupted, readAttempts)
}

// sleep waits, and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	// membarrierCmdGlobal is MEMBARRIER_CMD_GLOBAL of linux/membarrier.h.
	membarrierCmdGlobal = 1
	// settleTime is how long Settle waits if the kernel does not support waiting.
	settleTime = 20 * time.Millisecond
)

// Settle waits until every packet that netfilter was processing when it was called has passed, some milliseconds at most.
//
// MEMBARRIER_CMD_GLOBAL waits for an RCU grace period (membarrier(2), "synchronize_rcu"), and packets pass netfilter in an
// RCU read-side critical section. Kernels that run without a tick on some processors do not have it.
func Settle(ctx context.Context) error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierCmdGlobal, 0, 0); errno == 0 {
		return nil
	}
	if !sleep(ctx, settleTime) {
		return context.Cause(ctx)
	}
	return nil
}
