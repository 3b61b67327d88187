//go:build linux

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The layout of struct inet_diag_req_v2, and of struct inet_diag_msg in its answer.
const (
	requestSize = 56
	statesAt    = 4
	portsAt     = 8
	addrsAt     = 12
	addrSize    = 16
	cookieAt    = 48
	cookieSize  = 8

	familyOf = 0
	stateOf  = 1
	serverOf = 6
	addrOf   = 24
	cookieOf = 44
	userOf   = 64
)

// TCPUser returns the user that opened the client's end of a TCP connection, as a number. It asks sock_diag(7), which needs no rights. The
// client is in this network namespace; if there is no such connection the error is ENOENT.
func TCPUser(client, server netip.AddrPort) (uint32, error) {
	answer, err := ask(client, server)
	if err != nil {
		return 0, fmt.Errorf("find the user of the TCP connection from %s to %s: %w", client, server, err)
	}
	return binary.NativeEndian.Uint32(answer[userOf:]), nil
}

// AbortTCP ends a TCP connection whose client's end is in this network namespace: its owner gets ECONNABORTED, also if it only waits. It needs
// CAP_NET_ADMIN. If there is no such connection, or it is not open yet, the error is fs.ErrNotExist; if the kernel cannot do it, EOPNOTSUPP.
func AbortTCP(client, server netip.AddrPort) error {
	answer, err := ask(client, server)
	if err != nil {
		return fmt.Errorf("find the TCP connection from %s to %s: %w", client, server, err)
	}
	if !connects(answer, server) {
		return fmt.Errorf("abort the TCP connection from %s to %s: %w", client, server, fs.ErrNotExist)
	}
	data := requestFor(client, server)
	copy(data[cookieAt:], answer[cookieOf:cookieOf+cookieSize]) // no other socket, if this one has been closed meanwhile
	request := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	request.AddRawData(data)
	_, err = request.Execute(unix.NETLINK_INET_DIAG, 0)
	switch {
	case errors.Is(err, unix.ESTALE):
		return fmt.Errorf("abort the TCP connection from %s to %s: %w", client, server, fs.ErrNotExist)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("abort the TCP connection from %s to %s (SOCK_DESTROY): %w: the kernel was built without CONFIG_INET_DIAG_DESTROY", client, server, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("abort the TCP connection from %s to %s (SOCK_DESTROY): %w: CAP_NET_ADMIN is missing", client, server, err)
	case err != nil:
		return fmt.Errorf("abort the TCP connection from %s to %s (SOCK_DESTROY): %w", client, server, err)
	}
	return nil
}

// ask returns the kernel's answer about the client's end. It may be about a listener: the kernel falls back to it if there is no connection.
func ask(client, server netip.AddrPort) ([]byte, error) {
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0) // without NLM_F_DUMP the kernel looks in its hash
	request.AddRawData(requestFor(client, server))
	answers, err := request.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	switch {
	case err != nil:
		return nil, err
	case len(answers) != 1 || len(answers[0]) < userOf+4:
		return nil, fmt.Errorf("the kernel gave %d answers: %x", len(answers), answers)
	}
	return answers[0], nil
}

// connects reports whether an answer is about a connection to a server. One that still waits for it (SYN_SENT) has nothing to lose: its
// next SYN reaches another endpoint.
func connects(answer []byte, server netip.AddrPort) bool {
	if state := answer[stateOf]; state == unix.BPF_TCP_LISTEN || state == unix.BPF_TCP_SYN_SENT {
		return false
	}
	size := 4
	if answer[familyOf] == unix.AF_INET6 { // also of a client that uses IPv4 by such a socket
		size = addrSize
	}
	to, _ := netip.AddrFromSlice(answer[addrOf : addrOf+size])
	return to.Unmap() == server.Addr().Unmap().WithZone("") && binary.BigEndian.Uint16(answer[serverOf:]) == server.Port()
}

// requestFor is the question for the client's end.
func requestFor(client, server netip.AddrPort) []byte {
	from, to := client.Addr().Unmap(), server.Addr().Unmap()
	b := make([]byte, requestSize)
	b[0], b[1] = unix.AF_INET, unix.IPPROTO_TCP
	if from.Is6() {
		b[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(b[statesAt:], ^uint32(0))
	binary.BigEndian.PutUint16(b[portsAt:], client.Port())
	binary.BigEndian.PutUint16(b[portsAt+2:], server.Port())
	copy(b[addrsAt:], from.AsSlice())
	copy(b[addrsAt+addrSize:], to.AsSlice())
	for _, at := range []int{cookieAt, cookieAt + 4} { // INET_DIAG_NOCOOKIE
		binary.NativeEndian.PutUint32(b[at:], nl.TCPDIAG_NOCOOKIE)
	}
	return b
}
