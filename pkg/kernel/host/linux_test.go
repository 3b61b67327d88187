//go:build linux

package host

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

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
	result := make(chan Capabilities, 1)
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

// TestProcesses starts a daemon, which has flags only, after a command of the same program.
func TestProcesses(t *testing.T) {
	program, err := exec.LookPath("tail")
	if err != nil {
		t.Skip(err)
	}
	const name = "host-daemon"
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(program, path); err != nil {
		t.Fatal(err)
	}
	command, cmd := exec.Command(path, os.DevNull, "-f"), exec.Command(path, "-f", os.DevNull)
	for _, c := range []*exec.Cmd{command, cmd} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pids, err := Processes(name)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(pids, []int{cmd.Process.Pid}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %v, want %d", pids, cmd.Process.Pid)
		}
	}
	if os.Getuid() == 0 {
		seen := make(chan error)
		go func() { // of another user, on a thread that ends with it
			runtime.LockOSThread()
			_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534)
			_, err := Processes(name)
			seen <- err
		}()
		if err := <-seen; !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another user: %v", err)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if pids, err := Processes(name); err != nil || pids != nil {
		t.Errorf("got %v, %v, want none", pids, err)
	}
}
