//go:build linux

package trace

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// queue is how many bytes of events are kept until they are read: those of some 500 packets.
const queue = 8 << 20

// maxReceived is more than the events in any queue. Next returns after so many, although others may trace as fast as it reads.
const maxReceived = 50_000

// kernelTracer is the kernel's.
type kernelTracer struct {
	events *netlink.Listener
	// conn owns the tables.
	conn *nf.Conn
	decoder
}

// Open begins a trace in the network namespace of the calling thread. Its errors wrap [ErrRunning], [ErrOldKernel] or the
// kernel's number.
func Open(ctx context.Context, f Filter) (Tracer, error) {
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("trace packets: %w", err)
	}
	conn, err := nf.Open()
	if err != nil {
		return nil, fmt.Errorf("trace packets: %w", err)
	}
	events, err := netlink.Listen(unix.NFNLGRP_NFTRACE, queue)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets: %w", err), conn.Close())
	}
	t := &kernelTracer{events, conn, decoder{}}
	if err := t.begin(ctx, &f); err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets: %w", err), t.Close())
	}
	return t, nil
}

// begin subscribes to events, so that none is missed, and makes the tables.
func (t *kernelTracer) begin(ctx context.Context, f *Filter) error {
	if err := t.events.Join(); err != nil {
		return netlink.WithAdvice(err, nf.Advice)
	}
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
		if !f.has(family) {
			continue
		}
		b := nf.NewBatch(family, Table, t.conn.Limit())
		f.write(b, family)
		if err := t.conn.Commit(ctx, b); err != nil {
			if ctx.Err() != nil { // the kernel may have made the table after that
				return nf.Wrap("commit a batch", family, Table, err)
			}
			return t.explain(err, family)
		}
	}
	return nil
}

// explain returns what a refused table means.
func (t *kernelTracer) explain(err error, family nf.Family) error {
	exists, _ := t.conn.Exists(family, Table)
	switch refused, _ := errors.AsType[*nf.Refusal](err); {
	case exists:
		return ErrRunning
	case refused != nil && refused.Op == nf.AddTable && (refused.Errno == unix.EINVAL || refused.Errno == unix.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", ErrOldKernel, refused.Errno)
	default:
		return nf.Wrap("commit a batch", family, Table, err)
	}
}

// Next is part of [Tracer].
func (t *kernelTracer) Next(ctx context.Context) (events []Event, lost bool, _ error) {
	received := 0
	receive := func(m netlink.Message) {
		received++
		if e, ok := t.decode(m); ok {
			events = append(events, e)
		}
	}
	err := t.events.Await(ctx, func() bool {
		for {
			found, some := t.events.Receive(receive)
			lost = lost || some
			if !found || received >= maxReceived || ctx.Err() != nil {
				return lost || len(events) > 0
			}
		}
	})
	if err != nil && ctx.Err() == nil {
		return events, lost, fmt.Errorf("receive the events of packets: %w", err)
	}
	return events, lost, nil
}

// Close is part of [Tracer].
func (t *kernelTracer) Close() error { return errors.Join(t.events.Close(), t.conn.Close()) }
