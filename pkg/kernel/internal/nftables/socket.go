package nftables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/cputime"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// ErrClosed is the error of a closed socket.
var ErrClosed = errors.New("the table is closed")

// ErrUnconfirmed means that the kernel accepted a batch and did not acknowledge it.
var ErrUnconfirmed = errors.New("the kernel did not confirm the batch; whether the change was made is unknown: read the table again")

// Socket is a netlink socket to nf_tables.
//
// The kernel executes a request while it is being sent, and may wait for the holder of nf_tables' lock. So each request
// runs on a goroutine of its own, and its caller waits for that or for the end of a context. The next request waits for
// the one before. What a request costs counts as its caller's ([cputime.Measure]).
type Socket struct {
	*netlink.Socket
	closed bool
	turn   chan struct{} // holds a value while a request runs
}

// Open opens a socket.
func Open() (*Socket, error) {
	s, err := netlink.Open()
	if err != nil {
		return nil, err
	}
	return &Socket{Socket: s, turn: make(chan struct{}, 1)}, nil
}

// Close closes the socket, after a request that runs.
func (s *Socket) Close() error {
	s.turn <- struct{}{} // not while a request runs
	defer func() { <-s.turn }()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.Socket.Close()
}

// Do runs f, which uses the socket, and returns its result. If ctx ends first it returns false, and f continues without
// the caller: f must not touch what the caller uses after that.
func (s *Socket) Do(ctx context.Context, f func() error) (finished bool, _ error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("the kernel is still busy with the previous request: %w", context.Cause(ctx))
	}
	if s.closed {
		<-s.turn
		return false, ErrClosed
	}
	if ctx.Err() != nil { // select chooses at random
		<-s.turn
		return false, fmt.Errorf("the request was not sent: %w", context.Cause(ctx))
	}
	if ctx.Done() == nil {
		defer func() { <-s.turn }()
		return true, f()
	}
	done := make(chan error, 1)
	go func() {
		err := cputime.Count(ctx, f)
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

// commitAttempts is how often a batch is sent if the kernel is interrupted.
const commitAttempts = 5

// Commit sends a batch. The result is that of the first operation that failed, or success.
func (s *Socket) Commit(data []byte, firstSeq, lastSeq uint32) (netlink.Result, error) {
	for attempt := 1; ; attempt++ {
		first, confirmed, err := s.ExchangeBatch(data, firstSeq, lastSeq)
		if err != nil {
			return netlink.Result{}, err
		}
		switch {
		case first.Errno == unix.EAGAIN || first.Errno == unix.EINTR || first.Errno == unix.ERESTART:
			if attempt == commitAttempts {
				return first, nil
			}
			time.Sleep(time.Duration(attempt) * time.Millisecond)
		case first.Errno != 0:
			return first, nil //nolint:nilerr // the caller words it
		case !confirmed:
			return netlink.Result{}, ErrUnconfirmed
		default:
			return netlink.Result{}, nil
		}
	}
}

// ExchangeBatch sends a batch once. first is the result of the first operation that failed; confirmed means that the last one was
// acknowledged.
func (s *Socket) ExchangeBatch(data []byte, firstSeq, lastSeq uint32) (first netlink.Result, confirmed bool, _ error) {
	err := s.Exchange(data, func(m netlink.Message) error {
		if m.Type != unix.NLMSG_ERROR || m.Seq-firstSeq > lastSeq-firstSeq {
			return nil
		}
		r := m.Result()
		if r.Errno == 0 {
			confirmed = confirmed || r.Seq == lastSeq
		} else if first.Errno == 0 || r.Seq-firstSeq < first.Seq-firstSeq {
			first = r
		}
		return nil
	})
	return first, confirmed, err
}
