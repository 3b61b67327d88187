//go:build linux

package node

import "golang.org/x/sys/unix"

// Descriptors returns how many file descriptors this process may have. Go has raised the soft limit to the hard one.
func Descriptors() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil { // it fails only for an invalid argument
		return 0
	}
	return limit.Cur
}
