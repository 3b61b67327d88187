package netlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listener receives the notifications of a group, NFNLGRP_*, in the network namespace of the thread that opened it. Close may be called
// at any time.
type Listener struct {
	group  int
	file   *os.File
	conn   syscall.RawConn
	buffer []byte
}

// Listen opens a Listener, which is not a member of its group yet. The kernel keeps up to queue bytes of notifications until they are
// received, and uses that much memory only if they are not.
func Listen(group, queue int) (*Listener, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netfilter netlink socket: %w", err)
	}
	l := &Listener{group: group, file: os.NewFile(uintptr(fd), "netlink"), buffer: make([]byte, receiveBuffer)}
	err = sizeQueue(fd, queue)
	if err == nil { // the kernel sends nothing to a socket without an address
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err == nil {
		l.conn, err = l.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a netfilter netlink socket: %w", err), l.file.Close())
	}
	return l, nil
}

// sizeQueue sets how many bytes of messages are kept until they are received: without CAP_NET_ADMIN in the initial user namespace, at
// most what the administrator allows.
func sizeQueue(fd, size int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
}

// Join makes the kernel send notifications. It requires CAP_NET_ADMIN.
func (l *Listener) Join() error { return l.membership(unix.NETLINK_ADD_MEMBERSHIP) }

// Leave ends that. What has been sent can still be received.
func (l *Listener) Leave() error { return l.membership(unix.NETLINK_DROP_MEMBERSHIP) }

func (l *Listener) membership(option int) (err error) {
	closed := l.conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, option, l.group)
	})
	return errors.Join(err, closed)
}

// Send sends messages to the other members of the group, which Receive them; the kernel ignores them if they are no requests. It requires
// CAP_NET_ADMIN.
func (l *Listener) Send(data []byte) (err error) {
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (l.group - 1)}
	closed := l.conn.Control(func(fd uintptr) { err = unix.Sendto(int(fd), data, 0, to) })
	return errors.Join(err, closed)
}

// Receive calls each with some messages that are waiting, and waits for none: found is false if there are none. lost means that the
// kernel had more than the queue could hold, or that the socket is closed.
func (l *Listener) Receive(each func(Message)) (found, lost bool) {
	closed := l.conn.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), l.buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.EINTR):
			found = true
		case err != nil || n > len(l.buffer): // ENOBUFS, mostly
			found, lost = true, true
		default:
			found = true
			for m := ReadMessages(l.buffer[:n]); m.Next(); {
				each(m.Message)
			}
		}
	})
	return found, lost || closed != nil
}

// Await calls receive whenever there may be something to receive, until it returns true, ctx ends or the Listener is closed.
func (l *Listener) Await(ctx context.Context, receive func() bool) error {
	defer context.AfterFunc(ctx, func() { _ = l.file.SetReadDeadline(time.Now()) })()
	for {
		if err := l.file.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := l.conn.Read(func(uintptr) bool { return receive() })
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// Close closes the socket.
func (l *Listener) Close() error { return l.file.Close() }
