//go:build linux

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelTCPUser asks for the users of connections in both families, also of a client that uses IPv4 by an IPv6 listener, and aborts them.
func TestKernelTCPUser(t *testing.T) {
	const nobody = 65534
	lab := netns.Start(t, netns.Options{})
	host := lab.Node1.Host
	for _, test := range []struct {
		name, listen, dial string
		user               int
	}{
		{"IPv4", "127.0.0.1:8000", "127.0.0.1:8000", 0},
		{"IPv6", "[::1]:8000", "[::1]:8000", nobody},
		{"both", "[::]:8001", "127.0.0.1:8001", nobody},
		{"both, IPv6", "[::]:8002", "[::1]:8002", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			listener, err := host.Listen("tcp", test.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			err = host.Do(func() error {
				dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
					var failed error
					return errors.Join(c.Control(func(fd uintptr) { failed = unix.Fchown(int(fd), test.user, test.user) }), failed)
				}}
				connection, err := dialer.DialContext(t.Context(), "tcp", test.dial)
				if err != nil {
					return err
				}
				defer connection.Close()
				accepted, err := listener.Accept()
				if err != nil {
					return err
				}
				defer accepted.Close()
				client, server := accepted.RemoteAddr().(*net.TCPAddr).AddrPort(), accepted.LocalAddr().(*net.TCPAddr).AddrPort()
				if user, err := TCPUser(client, server); err != nil || int(user) != test.user {
					t.Errorf("%s to %s: user %d, %v; want %d", client, server, user, err, test.user)
				}
				if user, err := TCPUser(netip.AddrPortFrom(client.Addr(), 1), server); !errors.Is(err, unix.ENOENT) {
					t.Errorf("no connection: user %d, %v", user, err)
				}
				if err := AbortTCP(netip.AddrPortFrom(client.Addr(), 1), server); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("abort no connection: %v", err)
				}
				if err := AbortTCP(client, server); err != nil {
					t.Error(err)
				}
				if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
					t.Errorf("read an aborted connection: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKernelAbortTCPLeaves asks to abort connections that do not exist, for which the kernel finds a listener, and one that is not open yet.
func TestKernelAbortTCPLeaves(t *testing.T) {
	lab := netns.Start(t, netns.Options{})
	host := lab.Node1.Host
	err := host.Do(func() error {
		for _, at := range []string{"127.0.0.1:8000", "[::1]:8000", "[::]:8001"} {
			var config net.ListenConfig
			config.SetMultipathTCP(false) // the kernel never closes such a listener
			listener, err := config.Listen(t.Context(), "tcp", at)
			if err != nil {
				return err
			}
			t.Cleanup(func() { listener.Close() })
			address := listener.Addr().(*net.TCPAddr).AddrPort()
			client := address
			if address.Addr().IsUnspecified() {
				client = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), address.Port())
			}
			for _, port := range []uint16{1, address.Port()} {
				if err := AbortTCP(client, netip.AddrPortFrom(client.Addr(), port)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("abort the listener %s, server's port %d: %v", at, port, err)
				}
			}
			connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", client.String())
			if err != nil {
				t.Errorf("the listener %s is closed: %v", at, err)
				continue
			}
			connection.Close()
		}
		silent := lab.Node1.Addr(netns.IPv4).As4()
		silent[3] = 250 // nobody has it
		return leavesConnecting(t, netip.AddrFrom4(silent))
	})
	if err != nil {
		t.Error(err)
	}
}

// leavesConnecting asks to abort a connection whose SYN nobody answers.
func leavesConnecting(t *testing.T, silent netip.Addr) error {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	server := netip.AddrPortFrom(silent, 80)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: silent.As4()}); !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect to %s: %w", server, err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	local := own.(*unix.SockaddrInet4)
	client := netip.AddrPortFrom(netip.AddrFrom4(local.Addr), uint16(local.Port))
	if _, err := TCPUser(client, server); err != nil {
		t.Error(err)
	}
	if err := AbortTCP(client, server); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("abort a connection that is not open yet: %v", err)
	}
	if failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); failed != 0 || err != nil {
		t.Errorf("the connection was aborted: %v, %v", unix.Errno(failed), err)
	}
	return nil
}

// TestKernelAbortTCPMapped aborts the connection of a client that uses IPv4 by an IPv6 socket.
func TestKernelAbortTCPMapped(t *testing.T) {
	lab := netns.Start(t, netns.Options{})
	host := lab.Node1.Host
	listener, err := host.Listen("tcp", "127.0.0.1:8000")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = host.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrInet6{Port: 8000, Addr: netip.MustParseAddr("127.0.0.1").As16()}); err != nil {
			return err
		}
		own, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		client := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(own.(*unix.SockaddrInet6).Port))
		if err := AbortTCP(client, netip.MustParseAddrPort("127.0.0.1:8000")); err != nil {
			return err
		}
		if _, err := unix.Read(fd, make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
			t.Errorf("read an aborted connection: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
