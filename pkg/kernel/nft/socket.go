package nft

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// errClosed is the error of every method of a closed table.
var errClosed = errors.New("the table is closed")

// socket is a netlink socket to nf_tables.
//
// The kernel executes a request while it is being sent, and may wait for the holder of nf_tables' lock. So each request
// runs on a goroutine of its own, and its caller waits for that or for the end of a context. The next request waits for
// the one before.
type socket struct {
	*netlink.Socket
	closed bool
	turn   chan struct{} // holds a value while a request runs
}

func openSocket() (*socket, error) {
	s, err := netlink.Open()
	if err != nil {
		return nil, err
	}
	return &socket{Socket: s, turn: make(chan struct{}, 1)}, nil
}

func (s *socket) close() error {
	s.turn <- struct{}{} // not while a request runs
	defer func() { <-s.turn }()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.Close()
}

// do runs f, which uses the socket, and returns its result. If ctx ends first it returns false, and f continues without
// the caller: f must not touch what the caller uses after that.
func (s *socket) do(ctx context.Context, f func() error) (finished bool, _ error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("the kernel is still busy with the previous request: %w", context.Cause(ctx))
	}
	if s.closed {
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
