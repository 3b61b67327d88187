//go:build linux

package netlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the abstract unix socket by which release v0.1.0 locks.
const Name = "@kube-proxy-lock"

// maxQueue is how many connections to the name the kernel keeps. A v0.1.0 that finds the queue full does not wait.
const maxQueue = 128

// occupy listens on the name. It accepts no connections: one breaks when this process ends, which is all that v0.1.0 needs, and
// a process that connects all the time costs this one nothing.
func occupy() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: Name}); err == nil {
		err = unix.Listen(fd, maxQueue)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// standing is whether a process may hold the lock.
type standing int

const (
	unknown standing = iota // its capabilities cannot be read, for example because it is in another process namespace
	intruder
	capable
)

// occupant is the process that has the name.
type occupant struct {
	standing
	// owner is what it says about itself, as v0.1.0 does; otherwise only its process id, if that is known.
	owner Owner
	// reason is why it is not capable.
	reason error
}

// examine connects to the process that has the name, and waits for its answer.
func examine() occupant {
	connection, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: Name})
	if err != nil { // it does not listen, or its queue is full
		return occupant{reason: fmt.Errorf("a process has the name but accepts no connections (%w); find it with ss -xap", err)}
	}
	defer func() { _ = connection.Close() }()
	peer, err := credentials(connection)
	if err != nil {
		return occupant{reason: err}
	}
	o := occupant{owner: Owner{PID: int(peer.Pid)}}
	if o.standing, o.reason = judge(peer); o.standing == intruder {
		return o
	}
	line := make([]byte, maxMessage)
	_ = connection.SetReadDeadline(time.Now().Add(answerTimeout))
	if n, err := connection.Read(line); err == nil {
		o.owner.describe(line[:n])
		o.owner.Serving = o.owner.Mode != "" // v0.1.0 does not say
	}
	o.owner.unproven = o.standing == unknown
	return o
}

// judge returns whether a process has CAP_NET_ADMIN in this network namespace, and otherwise why not.
func judge(peer *unix.Ucred) (standing, error) {
	folder := fmt.Sprintf("/proc/%d/", peer.Pid)
	program, _ := os.ReadFile(folder + "comm")
	process := fmt.Sprintf("process %d (%q) of user %d", peer.Pid, strings.TrimSpace(string(program)), peer.Uid)
	if int(peer.Uid) != os.Geteuid() {
		return intruder, fmt.Errorf("%s is another user's", process)
	}
	if peer.Pid == 0 {
		return unknown, fmt.Errorf("a process of user %d is in another process namespace, so its capabilities cannot be read; find it with ss -xlp on the node", peer.Uid)
	}
	status, err := os.ReadFile(folder + "status")
	if err != nil {
		return unknown, fmt.Errorf("read the capabilities of %s: %w", process, err)
	}
	_, after, _ := strings.Cut(string(status), "\nCapEff:")
	line, _, _ := strings.Cut(after, "\n")
	effective, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return unknown, fmt.Errorf("read the capabilities of %s: %w", process, err)
	}
	if effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return intruder, fmt.Errorf("%s does not have the capability NET_ADMIN", process)
	}
	own, ownErr := os.Readlink("/proc/self/ns/user")
	other, err := os.Readlink(folder + "ns/user")
	switch {
	case ownErr != nil || err != nil:
		return unknown, fmt.Errorf("read the user namespace of %s: %w", process, errors.Join(ownErr, err))
	case own != other:
		return intruder, fmt.Errorf("%s is in another user namespace, so its capabilities do not count here", process)
	}
	return capable, nil
}

// describe sets what a process says about itself. What is not plain text stays empty.
func (o *Owner) describe(text []byte) {
	said := Owner{PID: o.PID}
	if json.Unmarshal(text, &said) != nil || strings.ContainsFunc(said.Mode+said.Version, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return
	}
	if o.PID != 0 {
		said.PID = o.PID
	}
	*o = said
}

// credentials returns those of the process that called listen(2) at the other end. Its process id is 0 if it is in a process
// namespace that is not visible here.
func credentials(connection *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return nil, err
	}
	if failed := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); failed != nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("read the credentials of the process that listens on %s: %w", Name, err)
	}
	return peer, nil
}
