package ipt

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
)

// legacyCounts returns all chains of a table, with how many packets have matched each of their rules. It does not create the table; without
// it there are none.
func legacyCounts(family Family, table string) (map[string][]uint64, error) {
	if !legacyTableExists(family, table) {
		return nil, nil
	}
	entries, i, err := legacyEntries(family, table)
	if err != nil {
		return nil, err
	}
	return layoutOf(family).counts(entries, i)
}

// legacyEntries reads a table on a socket of its own.
func legacyEntries(family Family, table string) ([]byte, *tableInfo, error) {
	r, err := openLegacyRequests(family)
	if err != nil {
		return nil, nil, err
	}
	entries, i, err := r.entries(table)
	return entries, i, errors.Join(err, r.close())
}

// legacyChains returns the names of a table's chains.
func legacyChains(family Family, table string) ([]string, error) {
	counts, err := legacyCounts(family, table)
	return slices.Collect(maps.Keys(counts)), err
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
