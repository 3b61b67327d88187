//go:build linux

// Package selfcall connects to this process itself, by TCP through the rules of the network namespace. If all is well that takes some
// system calls of one thread, and neither a goroutine nor another thread: a process that is idle otherwise uses hardly any processor time.
package selfcall

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ErrForeign is the error of a connection that another program has answered.
var ErrForeign = errors.New("another program answers")

// Other programs on this machine may connect, too. backlog is how many of theirs may wait to be accepted, and maxAccepted how many one call
// accepts: there is no answer in time if there are more.
const backlog, maxAccepted = 4096, 4 * 4096

// deviceIndex is where socket filters read the index of a packet's device: SKF_AD_OFF + SKF_AD_IFINDEX of linux/filter.h.
const deviceIndex = 0xfffff000 + 8

// onLoopback returns a socket filter that drops packets of all devices but lo, whose index is 1: rules of kube-proxy translate those of pods to the
// listeners, too. A socket that is bound to lo cannot answer the node's IPv6 addresses.
func onLoopback() []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: deviceIndex},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 1, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}

// Listeners listen on loopback addresses, for packets of this machine only. One goroutine uses them.
type Listeners struct {
	sockets   []int
	addresses []netip.AddrPort
	// token is what each client gets: another program that answers does not know it.
	token string
}

// Listen listens on a free port of the loopback addresses of networks: tcp4, tcp6. The listeners are those of the networks without an error.
func Listen(networks ...string) (*Listeners, error) {
	l := &Listeners{token: rand.Text()}
	var failed []error
	for _, network := range networks {
		addr := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if network == "tcp6" {
			addr = netip.IPv6Loopback()
		}
		if err := l.listen(addr); err != nil {
			failed = append(failed, fmt.Errorf("listen on %s: %w", addr, err))
		}
	}
	return l, errors.Join(failed...)
}

func (l *Listeners) listen(addr netip.Addr) (err error) {
	socket, err := open(addr)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(socket)
		} else {
			l.sockets = append(l.sockets, socket)
		}
	}()
	filter := onLoopback()
	if err := unix.SetsockoptSockFprog(socket, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return fmt.Errorf("keep others' packets out (SO_ATTACH_FILTER): %w", err)
	}
	if err := unix.Bind(socket, sockaddr(netip.AddrPortFrom(addr, 0))); err != nil {
		return err
	}
	if err := unix.Listen(socket, backlog); err != nil {
		return err
	}
	switch at, err := unix.Getsockname(socket); at := at.(type) {
	case *unix.SockaddrInet4:
		l.addresses = append(l.addresses, netip.AddrPortFrom(addr, uint16(at.Port)))
	case *unix.SockaddrInet6:
		l.addresses = append(l.addresses, netip.AddrPortFrom(addr, uint16(at.Port)))
	default:
		return err
	}
	return nil
}

// Addresses are those on which they listen.
func (l *Listeners) Addresses() []netip.AddrPort { return l.addresses }

// Close ends listening.
func (l *Listeners) Close() {
	for _, socket := range l.sockets {
		_ = unix.Close(socket)
	}
	l.sockets = nil
}

// Call connects to addresses, to all at the same time, and answers the connections that arrive meanwhile. It returns an error for each: nil
// if the listeners have answered, ETIMEDOUT if nobody has in time. The connections are reset at their end, and the kernel forgets them
// after 10 seconds.
func (l *Listeners) Call(to []netip.AddrPort, patience time.Duration) []error {
	errs := make([]error, len(to))
	calls := make([]unix.PollFd, len(to), len(to)+len(l.sockets))
	accepted := l.answer() // those before ours
	for i, address := range to {
		calls[i].Events = unix.POLLIN
		socket, err := begin(address)
		calls[i].Fd, errs[i] = int32(socket), err // poll ignores negative ones
	}
	for _, socket := range l.sockets {
		calls = append(calls, unix.PollFd{Fd: int32(socket), Events: unix.POLLIN})
	}
	for until := time.Now().Add(patience); ; {
		accepted += l.answer()
		waits := false
		for i := range to {
			socket := int(calls[i].Fd)
			if socket < 0 {
				continue
			}
			if errs[i] = l.result(socket); errors.Is(errs[i], unix.EAGAIN) {
				waits = true
				continue
			}
			_ = unix.Close(socket)
			calls[i].Fd = -1
		}
		left := time.Until(until)
		if !waits || left <= 0 || accepted > maxAccepted {
			break
		}
		_, _ = unix.Poll(calls, int(left/time.Millisecond)+1) // an interrupted one is as good as any
	}
	for i := range to {
		if calls[i].Fd >= 0 {
			_ = unix.Close(int(calls[i].Fd))
			errs[i] = unix.ETIMEDOUT
		}
	}
	return errs
}

// begin begins to connect.
func begin(to netip.AddrPort) (socket int, err error) {
	if socket, err = open(to.Addr()); err != nil {
		return -1, err
	}
	err = unix.SetsockoptLinger(socket, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err == nil {
		err = unix.Connect(socket, sockaddr(to))
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return -1, errors.Join(err, unix.Close(socket))
	}
	return socket, nil
}

// answer answers connections that have arrived, and returns their number.
func (l *Listeners) answer() (accepted int) {
	for _, socket := range l.sockets {
		for range backlog {
			conn, _, err := unix.Accept4(socket, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			_, _ = unix.Write(conn, []byte(l.token)) // the client notices
			_ = unix.Close(conn)
			accepted++
		}
	}
	return accepted
}

// result returns how a call has ended; EAGAIN if it has not.
func (l *Listeners) result(socket int) error {
	answer := make([]byte, len(l.token)+1)
	n, err := unix.Read(socket, answer)
	switch {
	case errors.Is(err, unix.ENOTCONN): // it is being connected
		return unix.EAGAIN
	case err != nil:
		return err
	case string(answer[:n]) != l.token:
		return ErrForeign
	}
	return nil
}

// Unrouted returns why the kernel sends nothing to an address; nil if it does. A socket of UDP that is connected has sent nothing yet.
func Unrouted(to netip.AddrPort) error {
	conn, err := net.Dial("udp", to.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// open opens a socket that never blocks.
func open(addr netip.Addr) (int, error) {
	domain := unix.AF_INET
	if addr.Is6() {
		domain = unix.AF_INET6
	}
	return unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}
