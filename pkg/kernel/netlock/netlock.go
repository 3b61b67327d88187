//go:build linux

package netlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the lock of all kube-proxies of this project.
const Name = "kube-proxy-lock"

const (
	// answerTimeout limits how long a holder may take to identify itself. A holder that does not, for example because it
	// is stopped, still holds the lock.
	answerTimeout = time.Second
	// pause is the time between two attempts if the holder is ending, or too many processes wait.
	pause = 10 * time.Millisecond
	// maxWaiting is the number of connections that a holder keeps open. Others wait in the kernel's queue, and do not
	// learn who the holder is.
	maxWaiting = 16
	// attempts limits how often Acquire tries a name that is bound and not listened on. It takes longer than a process
	// needs from bind to listen.
	attempts = 100
	// maxFull limits how often in succession Acquire waits for a process whose queue is full. A holder accepts at once; only a
	// process of another user, whose owner cannot be read, has a reason not to.
	maxFull = 5
	// maxDescription limits what is read from a holder, in bytes.
	maxDescription = 4 << 10
)

// Owner is a process that holds the lock.
type Owner struct {
	// PID is the process id: in the caller's process namespace if the process has one there, otherwise in its own. 0 is
	// unknown.
	PID int `json:"pid,omitempty"`
	// Mode, Version and Since are the proxy mode, the program's version, and when it took the lock; empty if the owner
	// does not answer.
	Mode    string    `json:"mode,omitempty"`
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// HeldError reports that another process holds the lock.
type HeldError struct{ Owner Owner }

func (e *HeldError) Error() string {
	o := e.Owner
	text := "another kube-proxy holds this network namespace"
	if o.PID != 0 {
		text += fmt.Sprintf(": process %d", o.PID)
	}
	if o.Mode == "" {
		return text + " (it does not answer)"
	}
	return text + fmt.Sprintf(", mode %s, version %s, since %s", o.Mode, o.Version, o.Since.Format(time.RFC3339))
}

// Lock is held until Release, or until the process ends.
type Lock struct {
	listener *net.UnixListener
	owner    Owner

	mu      sync.Mutex
	waiting map[*net.UnixConn]struct{}
	slots   chan struct{}
	done    sync.WaitGroup
}

// Try takes the lock of that name. self describes this process, except for PID and Since. The error is a [*HeldError]
// if another process of the same user holds the lock.
func Try(name string, self Owner) (*Lock, error) {
	lock, held, err := attempt(name, self)
	if held == nil {
		return lock, err
	}
	if held.connection != nil {
		_ = held.connection.Close() // only the owner is needed
	}
	return nil, &HeldError{held.owner}
}

// Holder returns the process of the same user that holds the lock; held is false if none does. It does not take the lock.
func Holder(name string) (owner Owner, held bool, err error) {
	address := &net.UnixAddr{Net: "unix", Name: "@" + name}
	connection, err := net.DialUnix("unix", nil, address)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return Owner{}, false, nil
	case errors.Is(err, unix.EAGAIN): // its queue is full
		return Owner{}, true, nil
	case err != nil:
		return Owner{}, false, fmt.Errorf("read the owner of the abstract unix socket %s: %w", address, err)
	}
	h, err := readOwner(connection)
	if err != nil {
		return Owner{}, false, err
	}
	_ = h.connection.Close()
	return h.owner, true, nil
}

// Acquire takes the lock like [Try], and waits while another process of the same user holds it. waiting is called with
// each owner that it waits for. The error is that of ctx if ctx ended first; any other error means that this machine
// does not support such locks, or that a process of another user occupies the name.
func Acquire(ctx context.Context, name string, self Owner, waiting func(Owner)) (*Lock, error) {
	var last Owner
	full := 0
	for reported := false; ; {
		lock, held, err := attempt(name, self)
		if held == nil {
			return lock, err
		}
		switch {
		case held.connection != nil:
			full = 0
		case full == maxFull:
			return nil, fmt.Errorf("a process listens on the abstract unix socket @%s, but accepts no connections; find it with ss -xlp", name)
		default:
			full++
		}
		if !held.ended && (!reported || held.owner != last) {
			reported, last = true, held.owner
			waiting(held.owner)
		}
		if err := held.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// attempt takes the lock, or connects to the process that holds it. Exactly one of the results is set.
func attempt(name string, self Owner) (*Lock, *holder, error) {
	address := &net.UnixAddr{Net: "unix", Name: "@" + name}
	for range attempts {
		listener, err := net.ListenUnix("unix", address)
		if err == nil {
			return newLock(listener, self), nil, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, nil, fmt.Errorf("lock this network namespace by the abstract unix socket %s: %w", address, err)
		}
		connection, err := net.DialUnix("unix", nil, address)
		switch {
		case err == nil:
			held, err := readOwner(connection)
			return nil, held, err
		case errors.Is(err, unix.ECONNREFUSED): // it has ended
		case errors.Is(err, unix.EAGAIN): // its queue is full
			return nil, &holder{}, nil
		default:
			return nil, nil, fmt.Errorf("read the owner of the abstract unix socket %s: %w", address, err)
		}
		time.Sleep(pause)
	}
	return nil, nil, fmt.Errorf("a process occupies the abstract unix socket %s without listening on it; find it with ss -xap", address)
}

// holder is the process that holds the lock, as a waiting process sees it. Without a connection nothing is known about it.
type holder struct {
	connection *net.UnixConn
	owner      Owner
	// ended reports that the process closed the connection immediately: it is ending.
	ended bool
}

// readOwner reads the description of the process at the other end.
func readOwner(connection *net.UnixConn) (*holder, error) {
	peer, err := credentials(connection)
	if err == nil && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("a process of user %d (process %d) occupies the abstract unix socket %s, by which kube-proxies lock a "+
			"network namespace; find it with ss -xlp", peer.Uid, peer.Pid, connection.RemoteAddr())
	}
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	h := &holder{connection: connection}
	line := make([]byte, maxDescription)
	_ = connection.SetReadDeadline(time.Now().Add(answerTimeout))
	n, err := connection.Read(line)
	if err == nil {
		_ = json.Unmarshal(line[:n], &h.owner) // fields that cannot be read stay empty
	}
	h.ended = err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	if peer.Pid != 0 {
		h.owner.PID = int(peer.Pid)
	}
	return h, nil
}

// wait returns nil when the process may have ended, and the error of ctx if that ended first.
func (h *holder) wait(ctx context.Context) error {
	if h.connection == nil {
		select {
		case <-ctx.Done():
		case <-time.After(answerTimeout):
		}
		return context.Cause(ctx)
	}
	_ = h.connection.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = h.connection.Close() })
	defer stop()
	rest := make([]byte, maxDescription)
	for {
		if _, err := h.connection.Read(rest); err != nil { // the holder sends nothing more; reading returns when it ends
			break
		}
	}
	_ = h.connection.Close()
	select {
	case <-ctx.Done():
	case <-time.After(pause): // the kernel closes the files of a process one after another
	}
	return context.Cause(ctx)
}

// newLock answers waiting processes in the background.
func newLock(listener *net.UnixListener, self Owner) *Lock {
	self.PID, self.Since = os.Getpid(), time.Now().UTC().Truncate(time.Second)
	l := &Lock{listener: listener, owner: self, waiting: map[*net.UnixConn]struct{}{}, slots: make(chan struct{}, maxWaiting)}
	l.done.Go(l.accept)
	return l
}

// Release releases the lock. A waiting process takes it immediately.
func (l *Lock) Release() error {
	err := l.listener.Close() // first, so that the name is free when the connections break
	l.mu.Lock()
	for connection := range l.waiting {
		_ = connection.Close()
	}
	l.waiting = nil
	l.mu.Unlock()
	l.done.Wait()
	return err
}

// accept answers until the listener is closed.
func (l *Lock) accept() {
	for {
		l.slots <- struct{}{}
		connection, err := l.listener.AcceptUnix()
		switch {
		case err == nil && l.admit(connection):
			l.done.Go(func() { l.describe(connection) })
			continue
		case err == nil:
			_ = connection.Close()
		case errors.Is(err, net.ErrClosed):
			return
		default: // for example too many open files
			time.Sleep(answerTimeout)
		}
		<-l.slots
	}
}

// admit reports whether to answer a connection: it is of the same user, and the lock is still held.
func (l *Lock) admit(connection *net.UnixConn) bool {
	peer, err := credentials(connection)
	if err != nil || int(peer.Uid) != os.Geteuid() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		return false
	}
	l.waiting[connection] = struct{}{}
	return true
}

// describe sends the owner's description, and keeps the connection open until the other end or Release closes it.
func (l *Lock) describe(connection *net.UnixConn) {
	defer func() { <-l.slots }()
	line, err := json.Marshal(l.owner)
	if err == nil {
		_, err = connection.Write(append(line, '\n'))
	}
	for err == nil {
		_, err = connection.Read(make([]byte, maxDescription))
	}
	_ = connection.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, connection)
}

// credentials returns those of the process at the other end; for a listener, of the one that called listen(2).
func credentials(connection *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return nil, err
	}
	if failed := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); failed != nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("read the credentials of the peer of %s: %w", connection.LocalAddr(), err)
	}
	return peer, nil
}
