package netlink

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer is the size of one read. The kernel makes the chunks of a dump as large as the reader's buffer, up to
	// 32 KiB, and for each chunk walks again over what it has sent already: with 4 KiB a dump of 250,000 elements takes 8
	// times as long.
	receiveBuffer = 64 << 10
	// receiveQueue is the size of the socket's queue of answers: a batch can have an error for each message.
	receiveQueue = 8 << 20
	// maxSendBuffer is the largest size of the send buffer, which takes no memory until something is sent, and sendOverhead what the
	// kernel needs of it (netlink_sendmsg).
	maxSendBuffer = math.MaxInt32 / 2
	sendOverhead  = 32
	// receiveTimeout bounds the wait for an answer, which the kernel gives while the request is sent.
	receiveTimeout = 10 * time.Second
)

// Socket is a netlink socket to netfilter, in the network namespace of the thread that opened it. Its methods must not be
// called concurrently, except Reserve and Limit.
type Socket struct {
	fd      int
	limit   int // how many bytes the send buffer takes
	seq     atomic.Uint32
	request []byte // reused
	answer  []byte // reused

	// dirty means that a request may have left answers behind.
	dirty bool
}

// Open opens a socket for requests.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netfilter netlink socket: %w", err)
	}
	s := &Socket{fd: fd, answer: make([]byte, receiveBuffer)}
	if err := s.configure(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *Socket) configure() error {
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, option, 1); err != nil {
			return fmt.Errorf("set netlink option %d: %w", option, err)
		}
	}
	if err := sizeQueue(s.fd, receiveQueue); err != nil {
		return fmt.Errorf("size the netlink receive buffer: %w", err)
	}
	timeout := unix.NsecToTimeval(int64(receiveTimeout))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return fmt.Errorf("set the netlink receive timeout: %w", err)
	}
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind the netfilter netlink socket: %w", err)
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, maxSendBuffer) == nil {
		s.limit = maxSendBuffer
		return nil
	}
	// Only CAP_NET_ADMIN in the initial user namespace exceeds net.core.wmem_max.
	return s.LimitSend(maxSendBuffer)
}

// Limit returns how many bytes can be sent at once. More than that is EMSGSIZE.
func (s *Socket) Limit() int { return s.limit }

// LimitSend limits what can be sent at once to about so many bytes, or what net.core.wmem_max allows: the kernel doubles the number, and
// refuses what is not smaller than the result minus sendOverhead.
func (s *Socket) LimitSend(size int) error {
	err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size/2)
	if err == nil {
		size, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	}
	if err != nil {
		return fmt.Errorf("size the netlink send buffer: %w", err)
	}
	s.limit = size - sendOverhead
	return nil
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Reserve reserves n sequence numbers and returns the first.
func (s *Socket) Reserve(n int) uint32 { return s.seq.Add(uint32(n)) - uint32(n) + 1 }

// Get sends a request whose attributes build appends, and calls answer with each message of the answer. The kernel has given
// all of it when sending returns. A request with the flag NLM_F_ACK may have an answer without messages; build and answer
// may be nil.
func (s *Socket) Get(h Header, build func([]byte) []byte, answer func(Message) error) error {
	request, seq := s.compose(h, build)
	answered := false
	err := s.Exchange(request, func(m Message) error {
		if m.Seq != seq {
			return nil
		}
		answered = true
		_, err := handle(m, answer)
		return err
	})
	if err == nil && !answered {
		return ErrNoAnswer
	}
	return err
}

// Dump is Get for a request for all objects of a kind. The kernel gives the answer as it is read. If others changed the
// objects meanwhile, the error is ErrInterrupted: then answer may have seen some twice, and others not at all. If the error
// wraps EINTR too, the kernel ended the dump early.
func (s *Socket) Dump(h Header, build func([]byte) []byte, answer func(Message) error) error {
	h.Flags |= unix.NLM_F_DUMP
	request, seq := s.compose(h, build)
	if err := s.begin(request); err != nil {
		return err
	}
	interrupted := false
	for {
		data, err := s.receive(true)
		if err != nil {
			return err
		}
		m := ReadMessages(data)
		for m.Next() {
			if m.Seq != seq {
				continue
			}
			interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
			done, err := handle(m.Message, answer)
			switch {
			case err != nil:
				return err
			case done && interrupted:
				s.dirty = false
				return ErrInterrupted
			case done:
				s.dirty = false
				return nil
			}
		}
		if m.Malformed() {
			return ErrMalformed
		}
	}
}

// Exchange sends messages and calls answer with each answer that the kernel has given when sending returns.
func (s *Socket) Exchange(data []byte, answer func(Message) error) error {
	if err := s.begin(data); err != nil {
		return err
	}
	for {
		data, err := s.receive(false)
		if data == nil || err != nil {
			s.dirty = err != nil
			return err
		}
		m := ReadMessages(data)
		for m.Next() {
			if err := answer(m.Message); err != nil {
				return err
			}
		}
		if m.Malformed() {
			return ErrMalformed
		}
	}
}

// compose builds a request in the reused buffer.
func (s *Socket) compose(h Header, build func([]byte) []byte) (request []byte, seq uint32) {
	seq = s.Reserve(1)
	h.Flags |= unix.NLM_F_REQUEST
	s.request = AppendMessage(s.request[:0], h)
	SetSeq(s.request, 0, seq)
	if build != nil {
		s.request = build(s.request)
	}
	EndMessage(s.request, 0)
	return s.request, seq
}

// handle calls answer with a message, or returns the outcome if the message ends the answer.
func handle(m Message, answer func(Message) error) (done bool, _ error) {
	if m.Type == unix.NLMSG_DONE || m.Type == unix.NLMSG_ERROR {
		return true, m.Result().Err()
	}
	if answer == nil {
		return false, nil
	}
	return false, answer(m)
}

// begin sends a request, after dropping what an abandoned one left behind.
func (s *Socket) begin(data []byte) error {
	if s.dirty {
		if err := s.drop(); err != nil {
			return err
		}
	}
	s.dirty = true
	return s.send(data)
}

// drop receives what is waiting.
func (s *Socket) drop() error {
	for {
		data, err := s.receive(false)
		if lost := errors.Is(err, unix.ENOBUFS) || errors.Is(err, errTooLong); !lost && (data == nil || err != nil) {
			return err
		}
	}
}

func (s *Socket) send(data []byte) error {
	for {
		err := unix.Sendto(s.fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// errTooLong means that a message did not fit the buffer and was cut off.
var errTooLong = errors.New("the kernel's answer is longer than expected")

// receive reads once. With wait false it returns nil if there is nothing.
func (s *Socket) receive(wait bool) ([]byte, error) {
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
			return nil, fmt.Errorf("%w: %d bytes", errTooLong, n)
		}
		return s.answer[:n], nil
	}
}
