//go:build linux

package netlock

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody is an unprivileged user.
const nobody = 65534

// TestKernelOtherUser checks that a name taken by an unprivileged process is an error, and that Acquire does not wait for it for
// long, also if the process never accepts the connections that fill its queue.
func TestKernelOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	for _, full := range []bool{false, true} {
		name := fmt.Sprintf("%s-%t", fresh(t), full)
		var socket int
		listening := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread keeps the other user, and ends with this goroutine
			var err error
			socket, err = listenAs(nobody, name)
			listening <- err
		}()
		if err := <-listening; err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(socket) })
		waiting, want := func(o Owner) { t.Errorf("waits for %+v", o) }, "a process of user 65534"
		if full {
			waiting, want = func(Owner) {}, "accepts no connections"
			for range 2 { // one more than the length of the queue
				connection, err := net.Dial("unix", "@"+name)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = connection.Close() })
			}
		}
		lock, err := Acquire(t.Context(), name, Owner{}, waiting)
		if lock != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v; want %q", lock, err, want)
		}
	}
}

// listenAs listens on an abstract name as a user.
func listenAs(user uintptr, name string) (socket int, err error) {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 {
		return -1, errno
	}
	socket, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(socket, &unix.SockaddrUnix{Name: "@" + name})
	}
	if err == nil {
		err = unix.Listen(socket, 1)
	}
	return socket, err
}
