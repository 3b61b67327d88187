package conntrack

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Kernel is the real Table.
type Kernel struct {
	// Entries are deleted on another socket than the dump.
	reading, deleting *netlink.Socket
}

var _ Table = (*Kernel)(nil)

// Open opens the table of the calling thread's network namespace. It may be used on any thread.
func Open() (*Kernel, error) {
	reading, err := netlink.Open()
	if err != nil {
		return nil, err
	}
	deleting, err := netlink.Open()
	if err != nil {
		return nil, errors.Join(err, reading.Close())
	}
	return &Kernel{reading, deleting}, nil
}

// Close is part of [Table].
func (k *Kernel) Close() error { return errors.Join(k.reading.Close(), k.deleting.Close()) }

// Settle is part of [Table].
func (k *Kernel) Settle(ctx context.Context) error { return netlink.Settle(ctx) }

// Sweep is part of [Table].
func (k *Kernel) Sweep(ctx context.Context, family Family, kind Kind, unwanted func(*Flow) bool) (Swept, error) {
	var done Swept
	var failed error // the first deletion that failed
	more := 0
	err := read(ctx, k.reading, family, kind.appendFilter, func(e *entry) {
		if !e.is(kind) {
			return
		}
		e.Kind = kind
		done.Seen++
		if !unwanted(&e.Flow) {
			return
		}
		switch deleted, err := k.delete(family, kind, e); {
		case deleted:
			done.Deleted++
		case err != nil && failed == nil:
			failed = fmt.Errorf("delete the tracked %s flow %s to %s (IPCTNL_MSG_CT_DELETE): %w", kind, e.Source, e.Destination, netlink.WithAdvice(err, advice))
		case err != nil:
			more++
		}
	})
	if errors.Is(err, netlink.ErrInterrupted) {
		done.Partial, err = true, nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", family, err)
	}
	if more > 0 {
		failed = fmt.Errorf("%w, and %d more", failed, more)
	}
	return done, errors.Join(err, failed)
}

// read calls visit with the entries of a family that a filter selects. An entry is valid until visit returns.
func read(ctx context.Context, socket *netlink.Socket, family Family, filter func([]byte) []byte, visit func(*entry)) error {
	var e entry
	err := socket.Dump(header(family, nl.IPCTNL_MSG_CT_GET, 0), filter, func(m netlink.Message) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := e.parse(m.Attrs()); err != nil {
			return err
		}
		visit(&e)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the table of tracked connections (IPCTNL_MSG_CT_GET): %w", netlink.WithAdvice(err, advice))
	}
	return nil
}

// delete deletes an entry unless it has ended or is no longer of its kind.
func (k *Kernel) delete(family Family, kind Kind, e *entry) (deleted bool, err error) {
	if kind == UnansweredTCP {
		if same, err := k.stillIs(family, kind, e); err != nil || !same {
			return false, err
		}
	}
	err = k.deleting.Get(header(family, nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK), e.appendKey, nil)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// stillIs reads an entry again: some milliseconds may have passed since the kernel put it into the dump, enough time
// for an answer. The kernel cannot delete an entry only in a certain state, so a window of microseconds remains.
func (k *Kernel) stillIs(family Family, kind Kind, e *entry) (bool, error) {
	var now entry
	err := k.deleting.Get(header(family, nl.IPCTNL_MSG_CT_GET, 0), e.appendKey, func(m netlink.Message) error {
		return now.parse(m.Attrs())
	})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return now.is(kind) && bytes.Equal(now.key, e.key), err
}

func (e *entry) appendKey(b []byte) []byte { return append(b, e.key...) }

func header(family Family, command, flags uint16) netlink.Header {
	return netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | command, Flags: flags, Family: uint8(family)}
}

// advice explains an error number and what to do.
func advice(errno unix.Errno) string {
	switch errno {
	case unix.EOPNOTSUPP, unix.EINVAL:
		return "load the kernel module nf_conntrack_netlink"
	}
	return netlink.Advice(errno)
}
