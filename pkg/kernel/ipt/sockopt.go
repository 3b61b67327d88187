package ipt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
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

// shape is the layout of a family's entries: struct ipt_entry, struct ip6t_entry.
type shape struct {
	level                      int
	match                      int // size of the part with addresses, interfaces and protocol
	targetOffset, nextOffset   int
	size                       int // where an entry's matches begin
	builtin                    [5]string
	socketFamily, socketNumber int
}

func shapeOf(family Family) shape {
	// By hook number, enum nf_inet_hooks.
	s := shape{builtin: [5]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}}
	if family == IPv6 {
		s.level, s.socketFamily, s.socketNumber = unix.SOL_IPV6, unix.AF_INET6, unix.IPPROTO_RAW
		s.match, s.targetOffset, s.nextOffset, s.size = 136, 140, 142, 168
		return s
	}
	s.level, s.socketFamily, s.socketNumber = unix.SOL_IP, unix.AF_INET, unix.IPPROTO_RAW
	s.match, s.targetOffset, s.nextOffset, s.size = 84, 88, 90, 112
	return s
}

// legacySentinel reads x_tables through a raw socket.
type legacySentinel struct {
	shape
	socket int
	buffer []byte
	// last is a digest of each table's info at the last call of changes.
	last map[string]uint64
	lock *lockWatch
	// cached are the digests that were last computed of each table.
	cached map[string]cachedDigests
}

// cachedDigests are a table's digests, and one of all its entries, which takes less time.
type cachedDigests struct {
	all     uint64
	digests map[string]uint64
}

func openLegacySentinel(family Family) (sentinel, error) {
	s, err := openLegacyRequests(family)
	if err != nil {
		return nil, err
	}
	if s.lock, err = openLockWatch(); err != nil {
		return nil, errors.Join(err, unix.Close(s.socket))
	}
	return s, nil
}

// openLegacyRequests opens a sentinel that does not watch the lock; the caller closes its socket.
func openLegacyRequests(family Family) (*legacySentinel, error) {
	s := &legacySentinel{shape: shapeOf(family), last: map[string]uint64{}, cached: map[string]cachedDigests{}}
	var err error
	if s.socket, err = unix.Socket(s.socketFamily, unix.SOCK_RAW|unix.SOCK_CLOEXEC, s.socketNumber); err != nil {
		return nil, fmt.Errorf("open a socket to x_tables: %w", err)
	}
	return s, nil
}

func (s *legacySentinel) close() error { return errors.Join(unix.Close(s.socket), s.lock.close()) }

// info is struct ipt_getinfo.
type info struct {
	raw     []byte
	hooks   uint32
	entry   [5]uint32
	entries uint32
	size    uint32
}

func (s *legacySentinel) info(table string) (info, error) {
	raw := make([]byte, infoSize)
	copy(raw[:tableNameLen-1], table)
	if err := s.getsockopt(optInfo, raw); err != nil {
		return info{}, fmt.Errorf("read x_tables' info of table %s: %w", table, err)
	}
	i := info{raw: raw, hooks: binary.NativeEndian.Uint32(raw[tableNameLen:])}
	for hook := range i.entry {
		i.entry[hook] = binary.NativeEndian.Uint32(raw[tableNameLen+4+4*hook:])
	}
	i.entries = binary.NativeEndian.Uint32(raw[infoSize-8:])
	i.size = binary.NativeEndian.Uint32(raw[infoSize-4:])
	return i, nil
}

// changes compares the number and size of the tables' entries, and where the built-in chains begin, with those of the last
// call. If they differ, or a program has had the lock, anything may have changed.
func (s *legacySentinel) changes(tables []string) (*Changes, error) {
	ran, err := s.lock.closed()
	if err != nil {
		return nil, err
	}
	c := &Changes{More: ran}
	for _, table := range tables {
		i, err := s.info(table)
		if err != nil {
			return nil, err
		}
		now := maphash.Bytes(digestSeed, i.raw)
		if before, known := s.last[table]; !known || before != now {
			c.More = true
		}
		s.last[table] = now
	}
	return c, nil
}

func (s *legacySentinel) getsockopt(option int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.socket), uintptr(s.level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	runtime.KeepAlive(value)
	if errno != 0 {
		return errno
	}
	return nil
}

// entries reads a table's entries into the sentinel's buffer; the kernel returns all or none.
func (s *legacySentinel) entries(table string) ([]byte, *info, error) {
	i, err := s.info(table)
	if err != nil {
		return nil, nil, err
	}
	if need := entriesHeader + int(i.size); cap(s.buffer) < need {
		s.buffer = make([]byte, need)
	}
	raw := s.buffer[:entriesHeader+int(i.size)]
	clear(raw[:entriesHeader])
	copy(raw[:tableNameLen-1], table)
	binary.NativeEndian.PutUint32(raw[tableNameLen:], i.size)
	err = s.getsockopt(optEntries, raw)
	if errors.Is(err, unix.EAGAIN) { // the size has changed
		return nil, nil, ErrBusy
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the entries: %w", err)
	}
	return raw[entriesHeader:], &i, nil
}

// digests returns a digest of each chain's entries.
func (s *legacySentinel) digests(ctx context.Context, table string, _ []string) (map[string]uint64, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	entries, i, err := s.entries(table)
	if err != nil {
		return nil, err
	}
	all, err := s.digestAll(entries)
	if err != nil {
		return nil, err
	}
	if known, ok := s.cached[table]; ok && known.all == all {
		return maps.Clone(known.digests), nil
	}
	digests, err := s.digestChains(entries, i)
	if err == nil {
		s.cached[table] = cachedDigests{all, maps.Clone(digests)}
	}
	return digests, err
}

// ruleDigests returns none: to find the rules of one chain, it would have to read the kernel's whole table.
func (s *legacySentinel) ruleDigests(string, string) ([]uint64, error) { return nil, nil }

// digestAll digests entries as they are, without counters.
func (s *legacySentinel) digestAll(entries []byte) (uint64, error) {
	var sum maphash.Hash
	sum.SetSeed(digestSeed)
	err := s.walk(entries, func(_ uint32, entry, _ []byte) {
		sum.Write(entry[:s.size-countersSize])
		sum.Write(entry[s.size:])
	})
	return sum.Sum64(), err
}

// legacyPackets reads the counters of chains' rules on a socket of its own. It reads the whole table.
func legacyPackets(_ context.Context, family Family, table string, wanted []string) (map[string][]uint64, error) {
	if !legacyTableExists(family, table) {
		return nil, nil // reading would create it
	}
	s, err := openLegacyRequests(family)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s.socket)
	entries, i, err := s.entries(table)
	if err != nil {
		return nil, err
	}
	chains, err := s.chains(entries, i)
	if err != nil {
		return nil, err
	}
	packets := map[string][]uint64{}
	for _, chain := range wanted {
		packets[chain] = nil
	}
	in, counts := "", false
	err = s.walk(entries, func(at uint32, entry, target []byte) {
		if name, begins := chains[at]; begins {
			in = name
			_, counts = packets[name]
		}
		if _, head := chainHead(target); head {
			counts = false
		}
		if counts {
			packets[in] = append(packets[in], binary.NativeEndian.Uint64(entry[s.size-countersSize:]))
		}
	})
	for chain, of := range packets {
		packets[chain] = of[:max(0, len(of)-1)] // the last entry of a chain is not a rule: it is the policy, or returns
	}
	return packets, err
}

// chains returns the names of chains by the offsets of their first entries.
func (s *legacySentinel) chains(entries []byte, i *info) (map[uint32]string, error) {
	chains := map[uint32]string{}
	for hook, at := range i.entry {
		if i.hooks&(1<<hook) != 0 {
			chains[at] = s.builtin[hook]
		}
	}
	err := s.walk(entries, func(at uint32, entry, target []byte) {
		if name, ok := chainHead(target); ok {
			chains[at+uint32(len(entry))] = name
		}
	})
	return chains, err
}

// digestChains walks a table's entries twice: to find where chains begin, because a jump is an offset, and to digest them.
func (s *legacySentinel) digestChains(entries []byte, i *info) (map[string]uint64, error) {
	chains, err := s.chains(entries, i)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	chain := ""
	var sum maphash.Hash
	sum.SetSeed(digestSeed)
	err = s.walk(entries, func(at uint32, entry, target []byte) {
		if _, head := chainHead(target); head {
			return
		}
		if name, begins := chains[at]; begins {
			chain = name
			out[chain] = 0
		}
		sum.Reset()
		sum.Write(entry[:s.match])
		hashMatches(&sum, entry[s.size:len(entry)-len(target)])
		hashTarget(&sum, target, chains)
		out[chain] = chained(out[chain], sum.Sum64())
	})
	return out, err
}

// hashMatches adds a rule's matches.
func hashMatches(sum *maphash.Hash, matches []byte) {
	for len(matches) >= targetData {
		size := int(binary.NativeEndian.Uint16(matches))
		if size < targetData || size > len(matches) {
			sum.Write(matches)
			return
		}
		hashExtension(sum, matches[:size])
		matches = matches[size:]
	}
}

// hashExtension adds a match or a target, without what follows the name in its field.
func hashExtension(sum *maphash.Hash, extension []byte) {
	name, _, _ := bytes.Cut(extension[nameAt:targetData-1], []byte{0})
	sum.Write(name)
	sum.Write(extension[targetData-1:])
}

// hashTarget adds a rule's target, and of a jump the name of the chain.
func hashTarget(sum *maphash.Hash, target []byte, chains map[uint32]string) {
	if target[nameAt] != 0 || len(target) < targetData+4 {
		hashExtension(sum, target)
		return
	}
	// The standard target has no name, and a verdict.
	verdict := binary.NativeEndian.Uint32(target[targetData:])
	switch to, jump := chains[verdict]; {
	case int32(verdict) < 0:
		sum.Write(target[targetData : targetData+4])
	case jump:
		sum.WriteString("to " + to)
	default:
		sum.WriteString("goes on")
	}
}

// walk visits entries with their offsets and targets.
func (s *legacySentinel) walk(entries []byte, visit func(at uint32, entry, target []byte)) error {
	for at := 0; at < len(entries); {
		rest := entries[at:]
		if len(rest) < s.size {
			return fmt.Errorf("the table ends within an entry: %w", unix.EBADMSG)
		}
		target := int(binary.NativeEndian.Uint16(rest[s.targetOffset:]))
		next := int(binary.NativeEndian.Uint16(rest[s.nextOffset:]))
		if target < s.size || next < target+targetData || next > len(rest) {
			return fmt.Errorf("an entry has an impossible size: %w", unix.EBADMSG)
		}
		visit(uint32(at), rest[:next], rest[target:next])
		at += next
	}
	return nil
}

// chainHead returns the name of the chain whose rules follow an entry with the error target. The table's last entry has that
// target too, with its name; nothing follows it.
func chainHead(target []byte) (string, bool) {
	if !bytes.HasPrefix(target[nameAt:], []byte(errorTarget+"\x00")) {
		return "", false
	}
	name, _, _ := bytes.Cut(target[targetData:], []byte{0})
	return string(name), true
}
