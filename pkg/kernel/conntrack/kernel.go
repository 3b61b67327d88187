package conntrack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Kernel is the real Table.
type Kernel struct {
	// Entries are deleted on another socket than the one that a dump is being read from.
	reading, deleting *nl.SocketHandle
}

var _ Table = (*Kernel)(nil)

// Open opens the table of the network namespace of the calling thread; it stays that one, whichever thread uses it.
func Open() (*Kernel, error) {
	k := &Kernel{}
	var err error
	if k.reading, err = openSocket(); err != nil {
		return nil, err
	}
	if k.deleting, err = openSocket(); err != nil {
		k.reading.Close()
		return nil, err
	}
	return k, nil
}

func openSocket() (*nl.SocketHandle, error) {
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err == nil {
		err = errors.Join(socket.SetReceiveTimeout(&nl.SocketTimeoutTv), socket.SetSendTimeout(&nl.SocketTimeoutTv))
	}
	if err != nil {
		return nil, fmt.Errorf("open a netfilter netlink socket: %w", err)
	}
	return &nl.SocketHandle{Socket: socket}, nil
}

// Close is part of [Table].
func (k *Kernel) Close() error {
	k.reading.Close()
	k.deleting.Close()
	return nil
}

// Sweep is part of [Table].
func (k *Kernel) Sweep(ctx context.Context, family Family, kind Kind, unwanted func(*Flow) bool) (Swept, error) {
	settle()
	var done Swept
	var failed failures
	var e entry
	var broken error
	request := request(k.reading, family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	for _, data := range filter(kind) {
		request.AddData(data)
	}
	err := request.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
		if broken = e.parse(message); broken == nil {
			broken = ctx.Err()
		}
		if broken != nil {
			return false
		}
		if !e.is(kind) {
			return true
		}
		done.Seen++
		if !unwanted(&e.Flow) {
			return true
		}
		switch deleted, err := k.delete(family, kind, &e); {
		case err != nil:
			failed.add(&e.Flow, err)
		case deleted:
			done.Deleted++
		}
		return true
	})
	switch {
	case errors.Is(err, netlink.ErrDumpInterrupted), errors.Is(err, unix.EINTR):
		done.Partial, err = true, nil
	case err != nil:
		err = fmt.Errorf("read the table of tracked %s connections (IPCTNL_MSG_CT_GET): %w%s", family, err, hint(err))
	}
	return done, errors.Join(broken, err, failed.err())
}

const (
	// settleTime is how long settle waits where the kernel cannot tell.
	settleTime = 20 * time.Millisecond

	membarrierCmdGlobal = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
)

// settle waits until the packets that met rules of before are in the table, some milliseconds at most: for an RCU grace
// period (membarrier(2), "synchronize_rcu"), since packets are received in an RCU read-side critical section.
func settle() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierCmdGlobal, 0, 0); errno != 0 {
		time.Sleep(settleTime)
	}
}

// delete deletes an entry, unless it ended by itself or is no longer of its kind.
func (k *Kernel) delete(family Family, kind Kind, e *entry) (deleted bool, err error) {
	if kind == UnansweredTCP {
		if same, err := k.stillIs(family, kind, e); err != nil || !same {
			return false, err
		}
	}
	request := request(k.deleting, family, nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	request.AddRawData(e.key)
	err = request.ExecuteIter(unix.NETLINK_NETFILTER, 0, func([]byte) bool { return true })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// stillIs looks at an entry again: some milliseconds may have passed since the kernel put it into the dump, time
// enough for an answer. No request deletes an entry only in a certain state, so microseconds remain.
func (k *Kernel) stillIs(family Family, kind Kind, e *entry) (bool, error) {
	var now entry
	var broken error
	// The kernel marks the one entry as part of a series (NLM_F_MULTI) that nothing ends: the acknowledgement does.
	request := request(k.deleting, family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_ACK)
	request.AddRawData(e.key)
	err := request.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
		broken = now.parse(message)
		return true
	})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return now.is(kind) && bytes.Equal(now.key, e.key), errors.Join(err, broken)
}

func request(on *nl.SocketHandle, family Family, operation, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|operation, flags)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: on}
	r.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family), Version: nl.NFNETLINK_V0})
	return r
}

// hint says what to do about an error.
func hint(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "; run with CAP_NET_ADMIN"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return "; load the kernel module nf_conntrack_netlink"
	}
	return ""
}

// failures sums up deletions that failed: the first says why.
type failures struct {
	first error
	count int
}

func (f *failures) add(flow *Flow, err error) {
	if f.count++; f.count == 1 {
		f.first = fmt.Errorf("delete the tracked %s flow %s to %s (IPCTNL_MSG_CT_DELETE): %w%s", flow.Kind, flow.Source, flow.Destination, err, hint(err))
	}
}

func (f *failures) err() error {
	if f.count > 1 {
		return fmt.Errorf("%w, and %d more", f.first, f.count-1)
	}
	return f.first
}
