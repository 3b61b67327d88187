package ipt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"maps"
	"os"
	"slices"
	"strings"
)

// legacyReader is the reader of the legacy variant.
type legacyReader struct {
	*legacyRequests
	lock *lockWatch
	// last is a digest of each table's info at the last call of changes.
	last map[string]uint64
	// cached are the digests that were last computed of each table.
	cached map[string]cachedDigests
}

// cachedDigests are a table's digests, and one of all its entries, which takes less time.
type cachedDigests struct {
	all     uint64
	digests map[string]uint64
}

func openLegacyReader(family Family) (reader, error) {
	requests, err := openLegacyRequests(family)
	if err != nil {
		return nil, err
	}
	lock, err := openLockWatch()
	if err != nil {
		return nil, errors.Join(err, requests.close())
	}
	return &legacyReader{requests, lock, map[string]uint64{}, map[string]cachedDigests{}}, nil
}

func (r *legacyReader) close() error { return errors.Join(r.legacyRequests.close(), r.lock.close()) }

// changes compares the number and size of the tables' entries, and where the built-in chains begin, with those of the last
// call. If they differ, or a program has had the lock, anything may have changed.
func (r *legacyReader) changes(_ context.Context, tables []string) (*Changes, error) {
	ran, err := r.lock.closed()
	if err != nil {
		return nil, err
	}
	c := &Changes{More: ran}
	for _, table := range tables {
		i, err := r.info(table)
		if err != nil {
			return nil, err
		}
		now := maphash.Bytes(digestSeed, i.raw[:])
		if before, known := r.last[table]; !known || before != now {
			c.More = true
		}
		r.last[table] = now
	}
	return c, nil
}

// digests returns a digest of each chain's entries.
func (r *legacyReader) digests(ctx context.Context, table string, _ []string) (map[string]uint64, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	entries, i, err := r.entries(table)
	if err != nil {
		return nil, err
	}
	all, err := r.digestAll(entries)
	if err != nil {
		return nil, err
	}
	if known, ok := r.cached[table]; ok && known.all == all {
		return maps.Clone(known.digests), nil
	}
	digests, err := r.digestChains(entries, i)
	if err == nil {
		r.cached[table] = cachedDigests{all, maps.Clone(digests)}
	}
	return digests, err
}

// ruleDigests returns none: to find the rules of one chain, it would have to read the kernel's whole table.
func (r *legacyReader) ruleDigests(string, string) ([]uint64, error) { return nil, nil }

// digestAll digests entries as they are, without counters.
func (l layout) digestAll(entries []byte) (uint64, error) {
	var sum maphash.Hash
	sum.SetSeed(digestSeed)
	err := l.walk(entries, func(_ uint32, entry, _ []byte) {
		sum.Write(entry[:l.size-countersSize])
		sum.Write(entry[l.size:])
	})
	return sum.Sum64(), err
}

// digestChains walks a table's entries twice: to find where chains begin, because a jump is an offset, and to digest them. The last
// entry of a chain is not a rule: it is the policy, or returns.
func (l layout) digestChains(entries []byte, i *tableInfo) (map[string]uint64, error) {
	chains, err := l.chains(entries, i)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	chain, last, digested := "", uint64(0), false
	var sum maphash.Hash
	sum.SetSeed(digestSeed)
	err = l.walk(entries, func(at uint32, entry, target []byte) {
		if _, head := chainHead(target); head {
			return
		}
		if name, begins := chains[at]; begins {
			chain, digested = name, false
			out[chain] = 0
		}
		if digested {
			out[chain] = chained(out[chain], last)
		}
		sum.Reset()
		sum.Write(entry[:l.match])
		hashMatches(&sum, entry[l.size:len(entry)-len(target)])
		hashTarget(&sum, target, chains)
		last, digested = sum.Sum64(), true
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

// legacyTable is what was read of a table: its entries, and the names of its chains by the offsets of their first entries.
type legacyTable struct {
	layout
	entries []byte
	chains  map[uint32]string
}

// readLegacyTable reads a whole table on a socket of its own. It does not create the table; without it, it has no chains.
func readLegacyTable(family Family, table string) (t legacyTable, _ error) {
	if !legacyTableExists(family, table) {
		return t, nil
	}
	r, err := openLegacyRequests(family)
	if err != nil {
		return t, err
	}
	entries, i, err := r.entries(table)
	if err := errors.Join(err, r.close()); err != nil {
		return t, err
	}
	chains, err := r.chains(entries, i)
	return legacyTable{r.layout, entries, chains}, err
}

// legacyChains returns the names of a table's chains.
func legacyChains(family Family, table string) ([]string, error) {
	t, err := readLegacyTable(family, table)
	return slices.Collect(maps.Values(t.chains)), err
}

// legacyPackets reads the counters of chains' rules.
func legacyPackets(_ context.Context, family Family, table string, wanted []string) (map[string][]uint64, error) {
	t, err := readLegacyTable(family, table)
	if err != nil {
		return nil, err
	}
	packets := map[string][]uint64{}
	for _, chain := range wanted {
		packets[chain] = nil
	}
	in, counts := "", false
	err = t.walk(t.entries, func(at uint32, entry, target []byte) {
		if name, begins := t.chains[at]; begins {
			in = name
			_, counts = packets[name]
		}
		if _, head := chainHead(target); head {
			counts = false
		}
		if counts {
			packets[in] = append(packets[in], binary.NativeEndian.Uint64(entry[t.size-countersSize:]))
		}
	})
	for chain, of := range packets {
		packets[chain] = of[:max(0, len(of)-1)] // the last entry of a chain is not a rule: it is the policy, or returns
	}
	return packets, err
}

// legacyTableExists looks up a table in the kernel's list for this network namespace, without creating it.
func legacyTableExists(family Family, table string) bool {
	list := "/proc/thread-self/net/ip_tables_names"
	if family == IPv6 {
		list = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(list)
	if err != nil {
		return false
	}
	for name := range strings.Lines(string(names)) {
		if strings.TrimSpace(name) == table {
			return true
		}
	}
	return false
}
