//go:build linux

// Package nftwatch reports that anybody wrote nf_tables, at no cost while nobody does.
//
// The kernel sends the members of NFNLGRP_NFTABLES (linux/netfilter/nfnetlink.h) a copy of every object that a transaction
// adds or removes, and builds these messages only if there are members. A Watch needs to know only that there was a
// transaction, so it is a member until the first message and leaves the group then: neither a program that writes all the
// time nor our own writes cost more than one wake-up for each call of Arm.
package nftwatch

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// queue is the size of the socket's queue in bytes: a lost message is as good as a received one, because reading then
// returns ENOBUFS.
const queue = 16 << 10

// Watch is a netlink socket in the network namespace of the thread that opened it. Its methods are safe for concurrent
// use. A nil Watch reports nothing: its channel is nil, and its methods do nothing.
type Watch struct {
	file     *os.File
	socket   syscall.RawConn
	modified chan struct{}
	ended    chan struct{}
}

// Open opens a Watch that is not armed. It requires CAP_NET_ADMIN.
func Open() (*Watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a socket for nf_tables' notifications: %w", err)
	}
	w := &Watch{file: os.NewFile(uintptr(fd), "netlink"), modified: make(chan struct{}, 1), ended: make(chan struct{})}
	w.socket, err = w.file.SyscallConn()
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queue)
	}
	if err == nil { // the kernel sends nothing to a socket without an address
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err == nil {
		err = w.join(true) // to find out now whether it is permitted
	}
	if err = errors.Join(err, w.join(false)); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to nf_tables' notifications: %w", err), w.file.Close())
	}
	go w.run()
	return w, nil
}

// Modified returns a channel that receives a value after the first transaction since Arm was called, and for Report.
func (w *Watch) Modified() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.modified
}

// Arm makes the Watch report the next transaction. Transactions before the call are not reported: compare the
// generation number, or what was written, after it. If it fails it reports a transaction, so that the caller compares
// again later.
func (w *Watch) Arm() {
	if w != nil && w.join(true) != nil {
		w.Report()
	}
}

// Disarm makes the Watch ignore transactions until Arm is called.
func (w *Watch) Disarm() {
	if w != nil {
		_ = w.join(false) // it is then reported once too often
	}
}

// Report sends a value to the channel, as if there had been a transaction.
func (w *Watch) Report() {
	if w == nil {
		return
	}
	select {
	case w.modified <- struct{}{}:
	default: // nobody has received the last one yet
	}
}

// Close closes the socket.
func (w *Watch) Close() error {
	if w == nil {
		return nil
	}
	err := w.file.Close()
	<-w.ended
	return err
}

// join enters or leaves the group.
func (w *Watch) join(member bool) (err error) {
	option := unix.NETLINK_DROP_MEMBERSHIP
	if member {
		option = unix.NETLINK_ADD_MEMBERSHIP
	}
	closed := w.socket.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, option, unix.NFNLGRP_NFTABLES)
	})
	return errors.Join(err, closed)
}

// run reports messages until the Watch is closed. It leaves the group before it reports: the receiver calls Arm after
// that.
func (w *Watch) run() {
	defer close(w.ended)
	for {
		if err := w.socket.Read(drain); err != nil {
			return
		}
		w.Disarm()
		w.Report()
	}
}

// drain drops all messages that are waiting, and reports whether there were any.
func drain(fd uintptr) (found bool) {
	var b [1]byte // the rest of a message is dropped
	for {
		switch _, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_DONTWAIT); {
		case errors.Is(err, unix.EAGAIN):
			return found
		case errors.Is(err, unix.EINTR):
		case err == nil, errors.Is(err, unix.ENOBUFS):
			found = true
		default:
			return true
		}
	}
}
