// Package hungfs mounts a file system that never answers, as a network file system does whose server is gone.
package hungfs

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts the file system at a directory that exists, until the test ends. Only root can. release lets everything that
// waits for it fail.
func Mount(t *testing.T, directory string) (release func()) {
	t.Helper()
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		unavailable(t, err)
	}
	// Requests wait for the answer to the first one, FUSE_INIT, which nobody reads.
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device.Fd())
	if err := unix.Mount("hungfs", directory, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		device.Close()
		unavailable(t, err)
	}
	t.Cleanup(func() {
		device.Close()
		if err := unix.Unmount(directory, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", directory, err)
		}
	})
	return func() { device.Close() }
}

// unavailable skips the test, or fails it in CI, because this machine lacks something.
func unavailable(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("a file system that does not answer: %v", err)
	}
	t.Skipf("a file system that does not answer: %v; run as root on Linux with fuse", err)
}
