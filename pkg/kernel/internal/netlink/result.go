package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrMalformed means that a message does not have the shape that its header promises.
	ErrMalformed = errors.New("malformed netlink message")
	// ErrNoAnswer means that the kernel accepted a request and did not answer it.
	ErrNoAnswer = errors.New("the kernel did not answer")
	// ErrInterrupted means that another process changed what was being read. Read it again ([Retry]).
	ErrInterrupted = errors.New("the kernel's tables changed while they were read")
)

// Result is the outcome of a request: what NLMSG_ERROR or NLMSG_DONE holds.
type Result struct {
	// Seq is the sequence number of the message that the outcome is about.
	Seq   uint32
	Errno unix.Errno // 0 is success
	// Text is the kernel's own explanation, often "".
	Text string
}

// Result decodes a message of the type NLMSG_ERROR or NLMSG_DONE.
func (m Message) Result() Result {
	r := Result{Seq: m.Seq}
	if len(m.body) < 4 {
		return r
	}
	r.Errno = unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
	const capped = 4 + unix.NLMSG_HDRLEN // with NETLINK_CAP_ACK: the error and the request's header
	if m.Type == unix.NLMSG_ERROR && m.Flags&unix.NLM_F_ACK_TLVS != 0 && len(m.body) >= capped {
		r.Text = String(Attr(m.body[capped:], unix.NLMSGERR_ATTR_MSG))
	}
	return r
}

// Err returns the outcome as an error, which wraps Errno; nil for success. EINTR, which ends a dump, is ErrInterrupted too.
func (r Result) Err() error {
	switch {
	case r.Errno == 0:
		return nil
	case r.Errno == unix.EINTR:
		return fmt.Errorf("%w: %w", ErrInterrupted, r.Errno)
	case r.Text != "":
		return fmt.Errorf("%w (%s)", r.Errno, r.Text)
	}
	return r.Errno
}

// WithAdvice adds to an error that wraps a unix.Errno what advice says about the number, if anything.
func WithAdvice(err error, advice func(unix.Errno) string) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		if text := advice(errno); text != "" {
			return fmt.Errorf("%w: %s", err, text)
		}
	}
	return err
}

// NeedsNetAdmin is the advice for a missing permission.
const NeedsNetAdmin = "CAP_NET_ADMIN is missing in the user namespace that owns this network namespace"

// Advice returns what an error number of any netfilter subsystem means and what to do; "" for numbers whose meaning depends on
// the subsystem.
func Advice(errno unix.Errno) string {
	switch errno {
	case unix.EPERM, unix.EACCES:
		return NeedsNetAdmin
	case unix.ENOBUFS:
		return "the kernel could not deliver its answer; whether the change was made is unknown: read again"
	case unix.ENOMEM:
		return "the kernel, or this container's memory cgroup, is out of memory; rules and elements count towards the container's limit"
	case unix.EAGAIN, unix.EINTR, unix.ERESTART:
		return "changes by other processes kept interrupting the kernel: try later"
	}
	return ""
}
