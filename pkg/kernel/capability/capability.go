//go:build linux

// Package capability reads the capabilities of this process, capabilities(7).
package capability

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Set holds a bit for each capability, by its number in linux/capability.h.
type Set uint64

// The capabilities that this program uses.
const (
	NetAdmin Set = 1 << unix.CAP_NET_ADMIN
	NetRaw   Set = 1 << unix.CAP_NET_RAW
)

// Effective returns the capabilities in effect.
func Effective() (Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return Set(data[0].Effective) | Set(data[1].Effective)<<32, nil
}
