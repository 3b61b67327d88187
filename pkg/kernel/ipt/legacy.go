package ipt

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
)

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
