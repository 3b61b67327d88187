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

// Refusal is the error of a batch that the kernel refused: the first operation at fault. Nothing of the batch was done. It unwraps to
// Errno: errors.Is(err, unix.EEXIST).
type Refusal struct {
	// Op is the operation, such as "add an element to set endpoints"; "" if the kernel blames none.
	Op    string
	Errno unix.Errno
	// Text is the kernel's own explanation; often "".
	Text string
}

// Error returns the operation and the kernel's words.
func (e *Refusal) Error() string {
	text := e.Errno.Error()
	if e.Op != "" {
		text = e.Op + ": " + text
	}
	if e.Text != "" {
		text += " (" + e.Text + ")"
	}
	return text
}

// Unwrap returns Errno.
func (e *Refusal) Unwrap() error { return e.Errno }

// refusalOf finds the operation in the messages of a batch.
func refusalOf(data []byte, r netlink.Result) *Refusal {
	e := &Refusal{Errno: r.Errno, Text: r.Text}
	for m := netlink.ReadMessages(data); m.Next(); {
		if m.Seq == r.Seq {
			e.Op = operationOf(m.Message)
		}
	}
	return e
}

// AddTable is the operation of [Batch.AddOwnedTable] in a Refusal.
const AddTable = "add the table"

// operationOf returns what a message of a batch does; "" for its beginning.
func operationOf(m netlink.Message) string {
	command := CommandOf(m)
	name := " " + m.AttrString(nameAttr(command))
	switch command {
	case unix.NFT_MSG_NEWTABLE:
		return AddTable
	case unix.NFT_MSG_DELTABLE:
		return "delete the table"
	case unix.NFT_MSG_NEWCHAIN:
		return "add chain" + name
	case unix.NFT_MSG_DELCHAIN:
		return "delete chain" + name
	case unix.NFT_MSG_NEWRULE:
		return "add a rule to chain" + name
	case unix.NFT_MSG_DELRULE:
		return "flush chain" + name
	case unix.NFT_MSG_NEWSETELEM:
		return "add an element to set" + name
	case unix.NFT_MSG_DELSETELEM:
		return "delete an element of set" + name
	}
	return ""
}

// Wrap adds the operation and the table to an error, and advice if it has a number. Without an error it returns nil.
func Wrap(op string, family Family, table string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nftables: %s (table %s %s): %w", op, family, table, netlink.WithAdvice(err, Advice))
}
