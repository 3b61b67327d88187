//go:build linux

package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// currentNamespace is the path of the calling thread's network namespace.
const currentNamespace = "/proc/thread-self/ns/net"

// newNamespace creates a network namespace that exists as long as the file is open
// or a process or socket is inside.
func newNamespace() (*os.File, error) {
	var made *os.File
	err := aside(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare the network namespace: %w", err)
		}
		var err error
		made, err = os.Open(currentNamespace)
		return err
	})
	return made, err
}

// inside runs f on a thread that is in the namespace.
func inside(namespace *os.File, f func() error) error {
	return aside(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// aside runs f, which may change the thread's network namespace, and puts the
// thread back afterwards, also when f panics. A thread that cannot be put back
// stays locked to its goroutine and ends with it, so that no other goroutine runs
// in the wrong namespace.
func aside(f func() error) (err error) {
	runtime.LockOSThread()
	before, err := os.Open(currentNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the current network namespace: %w", err)
	}
	defer func() {
		if back := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, fmt.Errorf("return to the previous network namespace: %w", back))
		} else {
			runtime.UnlockOSThread()
		}
		before.Close()
	}()
	return f()
}
