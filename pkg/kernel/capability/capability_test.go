//go:build linux

package capability

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEffective drops the capabilities of one thread, which must not run other tests.
func TestEffective(t *testing.T) {
	have, err := Effective()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if have&NetAdmin != 0 {
			t.Fatalf("an ordinary user has the capabilities %#x", have)
		}
		return
	}
	result := make(chan Set, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		keep := [2]unix.CapUserData{{Effective: uint32(have &^ NetRaw), Permitted: uint32(have &^ NetRaw)}}
		if err := unix.Capset(&header, &keep[0]); err != nil {
			t.Error(err)
		}
		left, err := Effective()
		if err != nil {
			t.Error(err)
		}
		result <- left
	}()
	if left := <-result; left != have&^NetRaw&0xffffffff {
		t.Errorf("%#x is left of %#x", left, have)
	}
}
