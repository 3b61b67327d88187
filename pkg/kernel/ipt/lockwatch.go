package ipt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockPath returns the file that the programs of the legacy variant lock while they write.
func lockPath() string {
	if path := os.Getenv("XTABLES_LOCKFILE"); path != "" {
		return path
	}
	return "/run/xtables.lock"
}

// lockWatch detects whether a program of the legacy variant ran, on any table: each opens the lock, and closes it after it has
// written. So do those in containers, where the file must be the host's.
type lockWatch struct {
	inotify int
	// gone means that the file is not watched, because there is none or it was replaced.
	gone   bool
	buffer [1 << 12]byte
}

func openLockWatch() (*lockWatch, error) {
	inotify, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, watchError(err)
	}
	return &lockWatch{inotify: inotify, gone: true}, nil
}

func (w *lockWatch) close() error { return unix.Close(w.inotify) }

// closed reports whether a process closed the lock since the last call. A file that has just appeared counts as closed.
func (w *lockWatch) closed() (bool, error) {
	ran := false
	for {
		n, err := unix.Read(w.inotify, w.buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return false, watchError(err)
		}
		ran = true
		w.gone = w.gone || replaced(w.buffer[:n])
	}
	if w.gone {
		switch _, err := unix.InotifyAddWatch(w.inotify, lockPath(), unix.IN_CLOSE|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF); {
		case err == nil:
			w.gone, ran = false, true
		case !errors.Is(err, unix.ENOENT):
			return false, watchError(err)
		}
	}
	return ran, nil
}

func watchError(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: raise the sysctls fs.inotify.max_user_instances and max_user_watches", err)
	}
	return fmt.Errorf("watch %s: %w", lockPath(), err)
}

// replaced reports whether the watched file was deleted or renamed.
func replaced(events []byte) bool {
	const header = unix.SizeofInotifyEvent
	for len(events) >= header {
		mask := binary.NativeEndian.Uint32(events[4:])
		size := header + int(binary.NativeEndian.Uint32(events[12:]))
		if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0 {
			return true
		}
		events = events[min(size, len(events)):]
	}
	return false
}
