package ipt

import (
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
	// watch is that of the file when it was last looked for; noWatch if there was none.
	watch  int
	buffer [1 << 12]byte
}

const noWatch = -1

func openLockWatch() (*lockWatch, error) {
	inotify, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, watchError(err)
	}
	return &lockWatch{inotify: inotify, watch: noWatch}, nil
}

func (w *lockWatch) close() error { return unix.Close(w.inotify) }

// closed reports whether a process closed the lock since the last call. A file that has just appeared, or gone, counts as closed.
func (w *lockWatch) closed() (bool, error) {
	watch, err := unix.InotifyAddWatch(w.inotify, lockPath(), unix.IN_CLOSE) // the same as before for the same file
	if errors.Is(err, unix.ENOENT) {
		watch, err = noWatch, nil
	}
	if err != nil {
		return false, watchError(err)
	}
	ran := watch != w.watch
	w.watch = watch
	for {
		switch _, err := unix.Read(w.inotify, w.buffer[:]); {
		case err == nil:
			ran = true
		case errors.Is(err, unix.EAGAIN):
			return ran, nil
		case !errors.Is(err, unix.EINTR):
			return false, watchError(err)
		}
	}
}

func watchError(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: raise the sysctls fs.inotify.max_user_instances and max_user_watches", err)
	}
	return fmt.Errorf("watch %s: %w", lockPath(), err)
}
