//go:build linux

package netlock

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// logGroup is the group of NFLOG that the holder has bound: "kp". It never changes, because different versions exclude each other.
	logGroup = 'k'<<8 | 'p'
	// multicastGroup is where questions are sent. Of the 32 groups of NETLINK_NETFILTER the kernel uses the first ones, NFNLGRP_*.
	multicastGroup = 32
	// maxMessage limits what is read of a message, in bytes.
	maxMessage = 4 << 10

	// From linux/netfilter/nfnetlink_log.h.
	configMessage = 1 // NFULNL_MSG_CONFIG
	configCommand = 1 // NFULA_CFG_CMD
	commandBind   = 1 // NFULNL_CFG_CMD_BIND
	commandUnbind = 2 // NFULNL_CFG_CMD_UNBIND
)

// socket is a netlink socket to netfilter and to the sockets of other kube-proxies in its network namespace.
type socket struct {
	file      *os.File
	conn      syscall.RawConn
	subsystem uint16 // NFLOG's, but in tests
}

// open opens a socket in the network namespace of the calling thread.
func open(subsystem uint16) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("lock this network namespace: open a netfilter netlink socket: %w", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "netfilter"), subsystem: subsystem} // reads and deadlines use Go's poller, because it does not block
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (multicastGroup - 1)}); err != nil {
		err = fmt.Errorf("lock this network namespace: join netfilter's multicast group %d: %w; it needs the capability NET_ADMIN", multicastGroup, err)
	} else {
		s.conn, err = s.file.SyscallConn()
	}
	if err != nil {
		_ = s.file.Close()
		return nil, err
	}
	return s, nil
}

// configure asks the kernel to bind or to unbind the group. The answer is a message.
func (s *socket) configure(command byte) error {
	b := header(s.subsystem<<8|configMessage, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0)
	b = binary.BigEndian.AppendUint16(b, logGroup)
	b = binary.NativeEndian.AppendUint16(b, unix.SizeofNlAttr+1)
	b = binary.NativeEndian.AppendUint16(b, configCommand)
	return s.send(append(b, command, 0, 0, 0), unix.SockaddrNetlink{})
}

// ask asks the holder who it is. The others try to take the lock when they see it.
func (s *socket) ask() error {
	return s.send(header(unix.NLMSG_NOOP, 0), unix.SockaddrNetlink{Groups: 1 << (multicastGroup - 1)})
}

// tell answers the socket that has asked.
func (s *socket) tell(port uint32, text []byte) error {
	return s.send(append(header(unix.NLMSG_NOOP, 0), text...), unix.SockaddrNetlink{Pid: port})
}

// header is a struct nlmsghdr whose length is missing.
func header(kind, flags uint16) []byte {
	b := binary.NativeEndian.AppendUint16(make([]byte, 4, 64), kind)
	return append(binary.NativeEndian.AppendUint16(b, flags), make([]byte, 8)...) // sequence number and port
}

func (s *socket) send(b []byte, to unix.SockaddrNetlink) error {
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	to.Family = unix.AF_NETLINK
	var err error
	if closed := s.conn.Control(func(fd uintptr) { err = unix.Sendto(int(fd), b, 0, &to) }); closed != nil {
		return closed
	}
	return err
}

// message is what a socket received.
type message struct {
	// port is the sender: 0 is the kernel. Every other one has CAP_NET_ADMIN.
	port uint32
	// errno is the kernel's answer to a request; 0 is success.
	errno unix.Errno
	// text is another process's answer; empty for a question.
	text []byte
}

// receive waits for a message until a time; the zero time is never.
func (s *socket) receive(deadline time.Time) (m message, err error) {
	if err := s.file.SetReadDeadline(deadline); err != nil {
		return m, err
	}
	b := make([]byte, maxMessage)
	var n int
	var from unix.Sockaddr
	if ended := s.conn.Read(func(fd uintptr) bool {
		n, from, err = unix.Recvfrom(int(fd), b, 0)
		return err != unix.EAGAIN && err != unix.EINTR
	}); ended != nil {
		return m, ended
	}
	if err != nil {
		return m, err
	}
	if sender, ok := from.(*unix.SockaddrNetlink); ok {
		m.port = sender.Pid
	}
	if body := b[min(n, unix.NLMSG_HDRLEN):n]; m.port != 0 {
		m.text = body
	} else if len(body) >= 4 { // struct nlmsgerr
		m.errno = unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
	}
	return m, nil
}
