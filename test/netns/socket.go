//go:build linux

package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a connected socket in a host's namespace that records ICMP errors, which
// the standard library's sockets discard. The file's deadlines apply to all
// operations.
type socket struct {
	*os.File
	raw syscall.RawConn
	// early is the error if connecting failed immediately.
	early error
	// denied reports that the last send failed with EPERM.
	denied bool
	// mine reports whether an ICMP error belongs to this socket; its argument is the
	// start of the offending packet, from the transport header. If mine is nil, the
	// kernel delivers only the socket's own errors.
	mine func(offending []byte) bool
}

// dial opens a socket in the probe's host and connects it, without waiting for the
// connection.
func (p Probe) dial() (*socket, error) {
	domain, kind, protocol := unix.AF_INET6, unix.SOCK_STREAM, 0
	level, option := unix.SOL_IPV6, unix.IPV6_RECVERR
	if p.To.Addr().Is4() {
		domain, level, option = unix.AF_INET, unix.SOL_IP, unix.IP_RECVERR
	}
	switch p.Protocol {
	case UDP:
		kind = unix.SOCK_DGRAM
	case SCTP: // the lab's own implementation, because many kernels have none
		kind, protocol = unix.SOCK_RAW, unix.IPPROTO_SCTP
	}
	fd := -1
	err := p.From.Do(func() (err error) {
		fd, err = unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket in %s: %w", p.From.Name, err)
	}
	if err = unix.SetsockoptInt(fd, level, option, 1); err == nil {
		err = p.bind(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	early := unix.Connect(fd, p.sockaddr(p.To))
	if early == unix.EINPROGRESS {
		early = nil
	}
	file := os.NewFile(uintptr(fd), "probe")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &socket{File: file, raw: raw, early: early}, nil
}

// bind binds the socket to the probe's source. If the probe has no source port, bind
// chooses one (see nextPort); SCTP ports are only in the packets.
func (p Probe) bind(fd int) error {
	address, port := p.Source.Addr(), p.Source.Port()
	if !address.IsValid() {
		if p.Protocol == SCTP {
			return nil
		}
		address = netip.IPv6Unspecified()
		if p.To.Addr().Is4() {
			address = netip.IPv4Unspecified()
		}
	}
	if port == 0 && p.Protocol != SCTP {
		return bindNext(fd, p, address)
	}
	// With TCP an earlier connection on the port may be in TIME_WAIT. UDP must not set
	// this: two sockets could get the same port.
	var err error
	if p.Protocol == TCP {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	source := netip.AddrPortFrom(address, port)
	if err == nil {
		err = unix.Bind(fd, p.sockaddr(source))
	}
	if err != nil {
		return fmt.Errorf("send from %v: %w", source, err)
	}
	return nil
}

// bindNext binds to the next free source port of the host.
func bindNext(fd int, p Probe, address netip.Addr) error {
	const tries = 1000
	for range tries {
		source := netip.AddrPortFrom(address, p.From.nextPort())
		if err := unix.Bind(fd, p.sockaddr(source)); !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	return fmt.Errorf("no free source port on %s in %d attempts: %w", p.From.Name, tries, unix.EADDRINUSE)
}

// sockaddr converts an address for the kernel. Raw sockets have no ports.
func (p Probe) sockaddr(address netip.AddrPort) unix.Sockaddr {
	port := int(address.Port())
	if p.Protocol == SCTP {
		port = 0
	}
	if address.Addr().Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: address.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: port, Addr: address.Addr().As16()}
}

// connected waits until a TCP connection is established or fails. An ICMP error ends
// the wait even if the kernel would continue to retry.
func (s *socket) connected() (icmp ICMP, err error) {
	waitErr := s.raw.Write(func(fd uintptr) bool {
		if icmp = s.readError(int(fd)); icmp != (ICMP{}) {
			return true
		}
		var errno int
		if errno, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			return true
		}
		if errno != 0 {
			err = syscall.Errno(errno)
			return true
		}
		_, err = unix.Getpeername(int(fd))
		if errors.Is(err, unix.ENOTCONN) {
			err = nil
			return false
		}
		return true
	})
	if waitErr != nil {
		err = waitErr
	}
	return icmp, err
}

// receive reads once. It ignores errors that belong to the packet of another socket.
func (s *socket) receive(b []byte) (n int, icmp ICMP, err error) {
	waitErr := s.raw.Read(func(fd uintptr) bool {
		for {
			n, err = unix.Read(int(fd), b)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return false
			case err == nil:
				return true
			}
			if icmp = s.readError(int(fd)); icmp != (ICMP{}) || s.mine == nil {
				return true
			}
		}
	})
	if waitErr != nil {
		err = waitErr
	}
	return max(n, 0), icmp, err
}

// pending returns the queued ICMP error, if any, without waiting.
func (s *socket) pending() (icmp ICMP) {
	_ = s.raw.Control(func(fd uintptr) { icmp = s.readError(int(fd)) })
	return icmp
}

// send writes once. It ignores EPERM, which means that the host's own rules dropped
// the packet, and notes it in denied: an ICMP error may still follow.
func (s *socket) send(b []byte) error {
	_, err := s.Write(b)
	if s.denied = errors.Is(err, unix.EPERM); s.denied {
		return nil
	}
	return err
}

// readError returns this socket's next ICMP error from the kernel's queue (see
// IP_RECVERR in ip(7)), or the zero value if there is none.
func (s *socket) readError(fd int) ICMP {
	var offending [256]byte
	var control [256]byte
	for {
		n, controls, _, _, err := unix.Recvmsg(fd, offending[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return ICMP{}
		}
		icmp := parseError(control[:controls])
		if icmp != (ICMP{}) && (s.mine == nil || s.mine(offending[:n])) {
			return icmp
		}
	}
}

// parseError parses struct sock_extended_err (linux/errqueue.h), and the address
// after it, in control messages. It returns zero for errors that are not ICMP errors.
func parseError(control []byte) ICMP {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return ICMP{}
	}
	for _, message := range messages {
		four := message.Header.Level == unix.SOL_IP && message.Header.Type == unix.IP_RECVERR
		six := message.Header.Level == unix.SOL_IPV6 && message.Header.Type == unix.IPV6_RECVERR
		data := message.Data
		switch {
		case four && len(data) >= 24 && data[4] == unix.SO_EE_ORIGIN_ICMP:
			return ICMP{Type: data[5], Code: data[6], From: offender(data[16:])}
		case six && len(data) >= 40 && data[4] == unix.SO_EE_ORIGIN_ICMP6:
			return ICMP{Type: data[5], Code: data[6], From: offender(data[16:])}
		}
	}
	return ICMP{}
}

// offender parses a struct sockaddr_in or sockaddr_in6.
func offender(sockaddr []byte) netip.Addr {
	switch binary.NativeEndian.Uint16(sockaddr) {
	case unix.AF_INET:
		return netip.AddrFrom4([4]byte(sockaddr[4:8]))
	case unix.AF_INET6:
		return netip.AddrFrom16([16]byte(sockaddr[8:24]))
	default:
		return netip.Addr{}
	}
}

// local returns the socket's local address.
func (s *socket) local() (address netip.AddrPort) {
	_ = s.raw.Control(func(fd uintptr) {
		name, err := unix.Getsockname(int(fd))
		if err != nil {
			return
		}
		switch name := name.(type) {
		case *unix.SockaddrInet4:
			address = netip.AddrPortFrom(netip.AddrFrom4(name.Addr), uint16(name.Port))
		case *unix.SockaddrInet6:
			address = netip.AddrPortFrom(netip.AddrFrom16(name.Addr), uint16(name.Port))
		}
	})
	return address
}
