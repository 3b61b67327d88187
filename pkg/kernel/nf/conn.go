package nf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// ErrClosed is the error of a closed socket.
var ErrClosed = errors.New("the table is closed")

// ErrUnconfirmed means that the kernel accepted a batch and did not acknowledge it.
var ErrUnconfirmed = errors.New("the kernel did not confirm the batch; whether the change was made is unknown: read the table again")

// Socket is what a Conn speaks through: the kernel's is a [netlink.Socket], whose methods these are. A fake nf_tables in its place gets
// the same messages, and stands under all doors.
type Socket interface {
	// Reserve, Limit and LimitSend do not ask the kernel.
	Reserve(n int) (first uint32)
	Limit() int
	LimitSend(size int) error
	// Get and Dump make a request, Exchange sends a batch.
	Get(h netlink.Header, build func([]byte) []byte, answer func(netlink.Message) error) error
	Dump(h netlink.Header, build func([]byte) []byte, answer func(netlink.Message) error) error
	Exchange(data []byte, answer func(netlink.Message) error) error
	Close() error
}

// Conn is a connection to nf_tables, in the network namespace of the thread that opened it.
//
// The kernel executes a request while it is being sent, and may wait for the holder of nf_tables' lock. So each request with a
// context runs on a goroutine of its own, and its caller waits for that or for the end of the context. The next such request
// waits for the one before. What a request costs counts as its caller's ([host.MeasureCPU]).
type Conn struct {
	Socket
	closed  bool
	running chan struct{} // holds a value while a request runs
}

// Open opens a connection. It needs CAP_NET_ADMIN to write, and for most reading.
func Open() (*Conn, error) {
	s, err := netlink.Open()
	if err != nil {
		return nil, err
	}
	return New(s), nil
}

// New returns a connection over a socket, which it closes with itself.
func New(s Socket) *Conn { return &Conn{Socket: s, running: make(chan struct{}, 1)} }

// Close closes the socket, after a request that runs.
func (c *Conn) Close() error {
	c.running <- struct{}{} // not while a request runs
	defer func() { <-c.running }()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.Socket.Close()
}

// Do runs f, which uses the socket, and returns its result. If ctx ends first it returns false, and f continues without
// the caller: f must not touch what the caller uses after that.
func (c *Conn) Do(ctx context.Context, f func() error) (finished bool, _ error) {
	select {
	case c.running <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("the kernel is still busy with the previous request: %w", context.Cause(ctx))
	}
	if c.closed {
		<-c.running
		return false, ErrClosed
	}
	if ctx.Err() != nil { // select chooses at random
		<-c.running
		return false, fmt.Errorf("the request was not sent: %w", context.Cause(ctx))
	}
	if ctx.Done() == nil {
		defer func() { <-c.running }()
		return true, f()
	}
	done := make(chan error, 1)
	go func() {
		err := host.CountCPU(ctx, f)
		<-c.running
		done <- err
	}()
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
		return false, fmt.Errorf("the kernel has not answered (another process may hold nf_tables' lock); the request may still take effect: %w", context.Cause(ctx))
	}
}

// TooLargeError is the error of a batch that has more bytes than the socket can send at once. It is EMSGSIZE, too.
type TooLargeError struct{ Size, Limit int }

// Error returns both numbers.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the transaction has %d bytes, and outside of the initial user namespace at most %d can be sent at once", e.Size, e.Limit)
}

// Unwrap returns EMSGSIZE.
func (e *TooLargeError) Unwrap() error { return unix.EMSGSIZE }

// Commit makes a batch's changes, all or nothing. An empty batch changes nothing. If the kernel refuses the batch, the error is a
// [*Refusal]; after any other error the changes may have been made, except a [*TooLargeError] or that of an operation that could not
// be encoded.
func (c *Conn) Commit(ctx context.Context, b *Batch) error {
	if b.err != nil {
		return b.err
	}
	if b.Len() == 0 {
		return nil
	}
	first := c.Reserve(b.messages + 1)
	data, last := b.finish(first)
	if limit := c.Limit(); len(data) > limit {
		return &TooLargeError{len(data), limit}
	}
	finished, err := c.Do(ctx, func() error { return c.commit(data, first, last) })
	if !finished {
		// The kernel may still be reading the buffer.
		b.buf = bytes.Clone(b.buf)
	}
	return err
}

// commitAttempts is how often a batch is sent if the kernel is interrupted.
const commitAttempts = 5

func (c *Conn) commit(data []byte, first, last uint32) error {
	for attempt := 1; ; attempt++ {
		r, confirmed, err := c.exchangeBatch(data, first, last)
		switch interrupted := r.Errno == unix.EAGAIN || r.Errno == unix.EINTR || r.Errno == unix.ERESTART; {
		case err != nil:
			return err
		case interrupted && attempt < commitAttempts:
			time.Sleep(time.Duration(attempt) * time.Millisecond)
		case r.Errno != 0:
			return refusalOf(data, r)
		case !confirmed:
			return ErrUnconfirmed
		default:
			return nil
		}
	}
}

// exchangeBatch sends a batch once. first is the result of the first operation that failed; confirmed means that the last one was
// acknowledged.
func (c *Conn) exchangeBatch(data []byte, firstSeq, lastSeq uint32) (first netlink.Result, confirmed bool, _ error) {
	err := c.Exchange(data, func(m netlink.Message) error {
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
