package nf

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Advice returns what an error number of nf_tables means and what to do, whatever the operation; "" if that depends on it.
func Advice(errno unix.Errno) string {
	switch errno {
	case unix.EPERM, unix.EACCES:
		return netlink.NeedsNetAdmin + " (or another process owns the table)"
	case unix.EMSGSIZE:
		return "the transaction is larger than a process outside of the initial user namespace can send at once: raise the host's sysctl net.core.wmem_max"
	case unix.ENFILE:
		return "the set has reached the size in its declaration"
	case unix.EMLINK, unix.ELOOP:
		return "chains jump to each other in a loop, or more than 16 deep"
	case unix.EOPNOTSUPP:
		return "this kernel lacks a feature of nf_tables, or a base chain was jumped to, or a statement does not fit its hook"
	case unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT:
		return "this kernel has no nf_tables: load the module nf_tables"
	}
	return netlink.Advice(errno)
}

// Wrap adds the operation and the table to an error, and advice if it has a number. Without an error it returns nil.
func Wrap(op string, family Family, table string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nftables: %s (table %s %s): %w", op, family, table, netlink.WithAdvice(err, Advice))
}
