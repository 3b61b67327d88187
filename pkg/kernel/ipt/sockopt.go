package ipt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Options of getsockopt, the same numbers in both families (linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6).
const (
	optInfo    = 64 // IPT_SO_GET_INFO
	optEntries = 65 // IPT_SO_GET_ENTRIES

	tableNameLen  = 32                             // XT_TABLE_MAXNAMELEN
	infoSize      = tableNameLen + 4 + 5*4*2 + 2*4 // struct ipt_getinfo
	entriesHeader = tableNameLen + 8               // struct ipt_get_entries up to the entries
	targetData    = 32                             // struct xt_entry_target, or xt_entry_match, up to its data
	countersSize  = 16                             // struct xt_counters, the last before an entry's matches
	nameAt        = 2                              // offset of the name in these: 29 bytes with a final NUL
	errorTarget   = "ERROR"                        // XT_ERROR_TARGET begins a chain
)

// The entries are read here, and not from iptables-legacy-save -c (0.06 s of a processor for 20,000 rules), because in nftables mode [Holding]
// looks for chains every 5 s, for which four programs would take some 20 ms, and also where none is installed.

// layout is where the parts of a family's entries are: struct ipt_entry, struct ip6t_entry.
type layout struct {
	socketFamily, level      int
	targetOffset, nextOffset int
	size                     int // where an entry's matches begin
}

func layoutOf(family Family) layout {
	if family == IPv6 {
		return layout{socketFamily: unix.AF_INET6, level: unix.SOL_IPV6, targetOffset: 140, nextOffset: 142, size: 168}
	}
	return layout{socketFamily: unix.AF_INET, level: unix.SOL_IP, targetOffset: 88, nextOffset: 90, size: 112}
}

// legacyRequests reads the entries of x_tables through a raw socket, as the programs do.
type legacyRequests struct {
	layout
	socket int
	// getsockopt is the system call, unless a test replaces it.
	getsockopt func(option int, value []byte) error
}

func openLegacyRequests(family Family) (*legacyRequests, error) {
	r := &legacyRequests{layout: layoutOf(family)}
	r.getsockopt = r.call
	var err error
	r.socket, err = unix.Socket(r.socketFamily, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: CAP_NET_RAW is missing", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open a raw socket to x_tables: %w", err)
	}
	return r, nil
}

func (r *legacyRequests) close() error { return unix.Close(r.socket) }

func (r *legacyRequests) call(option int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(r.socket), uintptr(r.level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// tableInfo is struct ipt_getinfo. hooks has a bit for each built-in chain, entry the offsets of their first entries, policy those of
// their last ones.
type tableInfo struct {
	raw           [infoSize]byte
	hooks         uint32
	entry, policy [5]uint32
	size          uint32
}

func (r *legacyRequests) info(table string) (i tableInfo, _ error) {
	copy(i.raw[:tableNameLen-1], table)
	if err := r.getsockopt(optInfo, i.raw[:]); err != nil {
		return i, fmt.Errorf("read x_tables' info of table %s: %w", table, netlink.WithAdvice(err, netlink.Advice))
	}
	i.hooks = binary.NativeEndian.Uint32(i.raw[tableNameLen:])
	for hook := range i.entry {
		i.entry[hook] = binary.NativeEndian.Uint32(i.raw[tableNameLen+4+4*hook:])
		i.policy[hook] = binary.NativeEndian.Uint32(i.raw[tableNameLen+4+4*len(i.entry)+4*hook:])
	}
	i.size = binary.NativeEndian.Uint32(i.raw[infoSize-4:])
	return i, nil
}

// entries reads a table's entries, all or none of them. If the table is replaced meanwhile, the error is
// ErrBusy.
func (r *legacyRequests) entries(table string) ([]byte, *tableInfo, error) {
	i, err := r.info(table)
	if err != nil {
		return nil, nil, err
	}
	raw := make([]byte, entriesHeader+int(i.size))
	copy(raw[:tableNameLen-1], table)
	binary.NativeEndian.PutUint32(raw[tableNameLen:], i.size)
	err = r.getsockopt(optEntries, raw)
	if errors.Is(err, unix.EAGAIN) { // the size has changed
		return nil, nil, ErrBusy
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read x_tables' entries of table %s: %w", table, err)
	}
	after, err := r.info(table)
	if err != nil {
		return nil, nil, err
	}
	if after != i { // the chains may begin elsewhere
		return nil, nil, ErrBusy
	}
	return raw[entriesHeader:], &i, nil
}

// counts returns the counters of the rules of all chains.
func (l layout) counts(entries []byte, i *tableInfo) (map[string][]uint64, error) {
	chains, in := map[string][]uint64{}, ""
	for at := 0; at < len(entries); {
		rest := entries[at:]
		if len(rest) < l.size {
			return nil, fmt.Errorf("the table ends within an entry: %w", unix.EBADMSG)
		}
		target := int(binary.NativeEndian.Uint16(rest[l.targetOffset:]))
		next := int(binary.NativeEndian.Uint16(rest[l.nextOffset:]))
		if target < l.size || next < target+targetData || next > len(rest) {
			return nil, fmt.Errorf("an entry has an impossible size: %w", unix.EBADMSG)
		}
		for hook, begins := range i.entry {
			if i.hooks&(1<<hook) != 0 && int(begins) == at {
				in = Builtin()[hook]
			}
		}
		name, head := chainHead(rest[target:next])
		if at += next; !head {
			chains[in] = append(chains[in], binary.NativeEndian.Uint64(rest[l.size-countersSize:]))
		} else if at < len(entries) { // the table's last entry is one, too
			in = name
		}
	}
	for chain, of := range chains {
		chains[chain] = of[:len(of)-1] // the last entry of a chain is not a rule: it is the policy, or returns
	}
	return chains, nil
}

// drops reports whether the entry at an offset is a policy that drops packets.
func (l layout) drops(entries []byte, at uint32) bool {
	const drop = -1 // NF_DROP in struct xt_standard_target
	rest := entries[min(int(at), len(entries)):]
	if len(rest) < l.size {
		return false
	}
	verdict := int(binary.NativeEndian.Uint16(rest[l.targetOffset:])) + targetData
	return verdict+4 <= len(rest) && int32(binary.NativeEndian.Uint32(rest[verdict:])) == drop
}

// chainHead returns the name of the chain whose rules follow an entry with the error target.
func chainHead(target []byte) (string, bool) {
	if !bytes.HasPrefix(target[nameAt:], []byte(errorTarget+"\x00")) {
		return "", false
	}
	name, _, _ := bytes.Cut(target[targetData:], []byte{0})
	return string(name), true
}
