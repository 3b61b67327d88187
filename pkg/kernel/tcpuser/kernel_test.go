//go:build linux

package tcpuser

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestKernelOf asks for the users of connections in both families, also of a client that uses IPv4 by an IPv6 listener, and aborts them.
func TestKernelOf(t *testing.T) {
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
				if user, err := Of(client, server); err != nil || int(user) != test.user {
					t.Errorf("%s to %s: user %d, %v; want %d", client, server, user, err, test.user)
				}
				if user, err := Of(netip.AddrPortFrom(client.Addr(), 1), server); !errors.Is(err, unix.ENOENT) {
					t.Errorf("no connection: user %d, %v", user, err)
				}
				if err := Abort(netip.AddrPortFrom(client.Addr(), 1), server); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("abort no connection: %v", err)
				}
				if err := Abort(client, server); err != nil {
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
