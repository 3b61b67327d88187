package nft

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// advice says what the number of a refused batch means, and what to do.
func advice(errno unix.Errno) string {
	switch errno {
	case unix.EEXIST:
		return "it exists; another process may have added it. The next sync reads the table again"
	case unix.ENOENT:
		return "the table, or a chain, set or element, does not exist; another process may have removed it. The next sync restores it"
	case unix.EBUSY:
		return "a rule, or an element that goes to it, still uses it; another process may have added that. The next sync reads the table again"
	case unix.EINVAL:
		return "its key or value does not fit the declaration of the set, or this kernel does not support it"
	}
	return ""
}

// Refused reports whether an error means that the kernel, or nft, refuses what a transaction contains, perhaps because of
// what the table holds. Other errors, like missing rights or memory, do not depend on the content.
func Refused(err error) bool {
	if errors.Is(err, unix.EMSGSIZE) { // less at a time may pass
		return true
	}
	var errno unix.Errno
	if batch, ok := errors.AsType[*nf.Refusal](err); ok {
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
func wrap(op string, family nf.Family, table string, err error) error {
	if _, refused := errors.AsType[*nf.Refusal](err); refused {
		err = netlink.WithAdvice(err, advice)
	}
	return nf.Wrap(op, family, table, err)
}
