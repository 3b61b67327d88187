package ipt

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReplacedEntries replaces a table by one of the same size while it is read. The info that was read before says where the
// chains of the old entries began, so it must be read again.
func TestReplacedEntries(t *testing.T) {
	v4 := layoutOf(IPv4)
	policy, rule := v4.rule("", []byte{0, 0, 0, 0}), v4.rule("DNAT", []byte("10.0.0.1:80"))
	output, entries := len(rule)+len(policy), slices.Concat(rule, policy, policy)
	r := &legacyRequests{layout: v4, getsockopt: func(option int, value []byte) error {
		if option == optEntries { // another program moves the rule to OUTPUT
			output, entries = len(policy), slices.Concat(policy, rule, policy)
			copy(value[entriesHeader:], entries)
			return nil
		}
		binary.NativeEndian.PutUint32(value[tableNameLen:], 1<<unix.NF_INET_PRE_ROUTING|1<<unix.NF_INET_LOCAL_OUT)
		binary.NativeEndian.PutUint32(value[tableNameLen+4+4*unix.NF_INET_LOCAL_OUT:], uint32(output))
		binary.NativeEndian.PutUint32(value[infoSize-4:], uint32(len(entries)))
		return nil
	}}
	if _, _, err := r.entries("nat"); !errors.Is(err, ErrBusy) {
		t.Errorf("a table that was replaced while it was read: %v, want %v", err, ErrBusy)
	}
	_, i, err := r.entries("nat")
	if err != nil || i.entry[unix.NF_INET_LOCAL_OUT] != uint32(len(policy)) {
		t.Errorf("read again: %v, %v", i, err)
	}
}
