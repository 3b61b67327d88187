package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer is what one read takes. The kernel makes the chunks of a dump as large as the reader's buffer, up to
	// 32 KiB, and walks over what it has told already for each chunk: with 4 KiB a dump of 250,000 elements takes 8 times
	// as long.
	receiveBuffer = 64 << 10
	// receiveQueue is the size of the socket's queue of answers. A batch can have an error for each message.
	receiveQueue = 8 << 20
	// receiveTimeout bounds the wait for an answer that the kernel gives while the request is sent.
	receiveTimeout = 10 * time.Second
	// readAttempts is how often something is read that others' transactions interrupt.
	readAttempts = 6
	// readPause, doubled each time, is how long to wait before reading again.
	readPause = 10 * time.Millisecond
)

// errInterrupted says that somebody's transaction came in between.
var errInterrupted = errors.New("the ruleset changed while it was read")

// errNoAnswer says that the kernel took a request and said nothing.
var errNoAnswer = errors.New("the kernel did not answer")

// errClosed is what a closed table answers.
var errClosed = errors.New("the table is closed")

// socket is a netlink socket to nf_tables, in the network namespace of the thread that opened it.
//
// The kernel carries out a request while it is being sent, and waits there for whoever holds nf_tables' lock. So each
// request runs on a goroutine of its own, and its caller waits for that or for the end of a context. The next request
// waits for the one before.
type socket struct {
	fd      int
	sendMax int // what the send buffer takes
	seq     atomic.Uint32
	request []byte // reused
	answer  []byte // reused

	// dirty says that a request may have left answers behind.
	dirty bool

	turn chan struct{} // holds a value while a request runs
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netfilter netlink socket: %w", err)
	}
	s := &socket{fd: fd, turn: make(chan struct{}, 1)}
	if err := s.configure(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *socket) configure() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind the netfilter netlink socket: %w", err)
	}
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, option, 1); err != nil {
			return fmt.Errorf("set netlink option %d: %w", option, err)
		}
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveQueue) != nil {
		// Without CAP_NET_ADMIN reading still works, with what the administrator allows.
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveQueue); err != nil {
			return fmt.Errorf("size the netlink receive buffer: %w", err)
		}
	}
	timeout := unix.NsecToTimeval(int64(receiveTimeout))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return fmt.Errorf("set the netlink receive time-out: %w", err)
	}
	return nil
}

func (s *socket) close() error {
	s.turn <- struct{}{} // not while a request runs
	defer func() { <-s.turn }()
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// do runs f, which uses the socket, and returns what it returns. If ctx ends first it returns false, and f goes on
// without the caller: f must not touch what the caller uses after that.
func (s *socket) do(ctx context.Context, f func() error) (finished bool, _ error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("the kernel is still busy with the request before: %w", context.Cause(ctx))
	}
	if s.fd < 0 {
		<-s.turn
		return false, errClosed
	}
	if ctx.Done() == nil {
		defer func() { <-s.turn }()
		return true, f()
	}
	done := make(chan error, 1)
	go func() {
		err := f()
		<-s.turn
		done <- err
	}()
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
		return false, fmt.Errorf("the kernel has not answered (another process may hold nf_tables' lock); the request may still take effect: %w", context.Cause(ctx))
	}
}

// reserve takes n sequence numbers and returns the first.
func (s *socket) reserve(n int) uint32 { return s.seq.Add(uint32(n)) - uint32(n) + 1 }

// send sends data, growing the send buffer to what it needs.
func (s *socket) send(data []byte) error {
	if len(data) > s.sendMax {
		// The kernel doubles the number, and refuses a message that is not smaller than the result minus 32.
		want := min(max(len(data), 1<<20), math.MaxInt32/2)
		if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, want) == nil {
			s.sendMax = want
		} else if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, want); err != nil {
			return fmt.Errorf("size the netlink send buffer: %w", err)
		}
	}
	for {
		err := unix.Sendto(s.fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// receive reads once. With wait false it returns nil if there is nothing.
func (s *socket) receive(wait bool) ([]byte, error) {
	if s.answer == nil {
		s.answer = make([]byte, receiveBuffer)
	}
	flags := unix.MSG_TRUNC
	if !wait {
		flags |= unix.MSG_DONTWAIT
	}
	for {
		n, _, err := unix.Recvfrom(s.fd, s.answer, flags)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && !wait:
			return nil, nil
		case err == unix.EAGAIN:
			return nil, fmt.Errorf("the kernel did not answer within %v", receiveTimeout)
		case err != nil:
			return nil, fmt.Errorf("receive the kernel's answer: %w", err)
		case n > len(s.answer):
			return nil, fmt.Errorf("the kernel's answer has %d bytes, more than expected", n)
		}
		return s.answer[:n], nil
	}
}

// drain drops what an abandoned request left behind.
func (s *socket) drain() error {
	for {
		b, err := s.receive(false)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		if b == nil && err == nil {
			return nil
		}
	}
}

// begin prepares the socket for a request: nothing of an earlier one must be left.
func (s *socket) begin() error {
	if s.dirty {
		if err := s.drain(); err != nil {
			return err
		}
	}
	s.dirty = true
	return nil
}

// get sends one request whose attributes build appends, and calls answer with each message of the answer. The kernel has
// given all of it when sending returns.
func (s *socket) get(command int, family byte, build func([]byte) []byte, answer func(message) error) error {
	seq, err := s.ask(command, 0, family, build)
	if err != nil {
		return err
	}
	for answered := false; ; answered = true {
		data, err := s.receive(false)
		if err != nil {
			return err
		}
		if data == nil {
			s.dirty = false
			if !answered {
				return errNoAnswer
			}
			return nil
		}
		if _, err := each(data, seq, answer); err != nil {
			return err
		}
	}
}

// dump is get for a request for all objects of a kind. The kernel gives the answer as it is read.
func (s *socket) dump(command int, family byte, build func([]byte) []byte, answer func(message) error) error {
	seq, err := s.ask(command, unix.NLM_F_DUMP, family, build)
	if err != nil {
		return err
	}
	interrupted := false
	for {
		data, err := s.receive(true)
		if err != nil {
			return err
		}
		done, err := each(data, seq, func(m message) error {
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			return answer(m)
		})
		if err != nil {
			return err
		}
		if done {
			s.dirty = false
			if interrupted {
				return errInterrupted
			}
			return nil
		}
	}
}

func (s *socket) ask(command int, flags uint16, family byte, build func([]byte) []byte) (seq uint32, _ error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	seq = s.reserve(1)
	s.request = appendMessage(s.request[:0], nftMessageType|uint16(command), unix.NLM_F_REQUEST|flags, family)
	binary.NativeEndian.PutUint32(s.request[8:], seq)
	if build != nil {
		s.request = build(s.request)
	}
	endMessage(s.request, 0)
	return seq, s.send(s.request)
}

// each calls answer with the messages of a request's answer. done says that it ended.
func each(data []byte, seq uint32, answer func(message) error) (done bool, _ error) {
	m := messages{rest: data}
	for m.next() {
		switch {
		case m.seq != seq:
		case m.typ == unix.NLMSG_DONE || m.typ == unix.NLMSG_ERROR:
			done = true
			if errno := resultOf(m.message).errno; errno != 0 {
				return true, errno
			}
		default:
			if err := answer(m.message); err != nil {
				return done, err
			}
		}
	}
	if m.bad {
		return done, errMalformed
	}
	return done, nil
}

// result is what NLMSG_ERROR or NLMSG_DONE says.
type result struct {
	seq    uint32
	errno  unix.Errno // 0 is success
	text   string     // the kernel's own words, if any
	offset uint32     // of the attribute at fault in the request's message; 0 is unknown
}

func resultOf(m message) result {
	r := result{seq: m.seq}
	if len(m.body) < 4 {
		return r
	}
	r.errno = unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
	const capped = 4 + unix.NLMSG_HDRLEN // with NETLINK_CAP_ACK: the error and the request's header
	if m.typ != unix.NLMSG_ERROR || m.flags&nlmFAckTLVs == 0 || len(m.body) < capped {
		return r
	}
	for a := (attrs{rest: m.body[capped:]}); a.next(); {
		switch a.typ {
		case unix.NLMSGERR_ATTR_MSG:
			r.text = a.str()
		case unix.NLMSGERR_ATTR_OFFS:
			if len(a.data) == 4 {
				r.offset = binary.NativeEndian.Uint32(a.data)
			}
		}
	}
	return r
}
