package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// BatchError names the operation of a batch that the kernel refused. Nothing of the batch was done.
// It unwraps to Errno: errors.Is(err, unix.EEXIST).
type BatchError struct {
	Family knftables.Family
	Table  string
	// Op is "add element", "delete element", "add chain", "flush chain", "delete chain", "add table", "delete table" or "add rule", or
	// "commit" if the kernel does not blame one message.
	Op string
	// Set has the element, one of those in the same message; Object is the chain of any other operation.
	Set    string
	Object string
	Errno  unix.Errno
	// Text is the kernel's own explanation; often "".
	Text string
}

// Error returns the operation, the cause and what to do.
func (e *BatchError) Error() string {
	s := "nftables: " + e.Op
	switch {
	case e.Set != "":
		s += " of set " + e.Set + " in"
	case e.Object != "":
		s += " " + e.Object + " in"
	}
	s += fmt.Sprintf(" table %s %s: %s", e.Family, e.Table, e.Errno.Error())
	if e.Text != "" {
		s += " (" + e.Text + ")"
	}
	if advice := e.advice(); advice != "" {
		s += ": " + advice
	}
	return s
}

// Unwrap returns Errno.
func (e *BatchError) Unwrap() error { return e.Errno }

// advice says what an error number means here and what to do.
func (e *BatchError) advice() string {
	switch e.Errno {
	case unix.EEXIST:
		if e.Set != "" {
			return "the element exists; another process may have added it. The next sync reads the table again"
		}
		return "it exists; another process may have added it. The next sync reads the table again"
	case unix.ENOENT:
		switch e.Op {
		case "add element":
			return "the table, the set or the chain to go to does not exist; another process may have removed it. The next sync restores it"
		case "delete element":
			return "the element or its set does not exist; another process may have removed it. The next sync reads the table again"
		}
		return "the table, chain or set does not exist; another process may have removed it. The next sync restores it"
	case unix.EBUSY:
		return "a rule, or an element that goes to it, still uses it; another process may have added that. The next sync reads the table again"
	case unix.EINVAL:
		return "its key or value does not fit the declaration of the set, or this kernel does not support it"
	}
	return nf.Advice(e.Errno)
}

// Refused reports whether an error means that the kernel, or nft, refuses what a transaction contains, perhaps because of
// what the table holds. Other errors, like missing rights or memory, do not depend on the content.
func Refused(err error) bool {
	if errors.Is(err, unix.EMSGSIZE) { // less at a time may pass
		return true
	}
	var errno unix.Errno
	if batch, ok := errors.AsType[*BatchError](err); ok {
		errno = batch.Errno
	} else if refused, ok := errors.AsType[*ProgramError](err); ok {
		errno = refused.Errno
	}
	switch errno {
	case unix.EEXIST, unix.ENOENT, unix.EBUSY, unix.EINVAL, unix.EOPNOTSUPP, unix.EMLINK, unix.ELOOP, unix.ENFILE,
		unix.ENOSPC, unix.E2BIG, unix.ERANGE, unix.ENAMETOOLONG, unix.EOVERFLOW, unix.EPROTOTYPE:
		return true
	}
	return false
}

// wrap adds the operation and the table to an error, and advice if it has a number.
func wrap(op string, family knftables.Family, table string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*BatchError](err); ok {
		return err
	}
	return nf.Wrap(op, familyNumber(family), table, err)
}
