package clusters

import (
	"slices"
	"strings"
)

// ChangedLines returns the lines that one of two texts has more often than the other, each once, sorted, without surrounding
// whitespace.
func ChangedLines(before, after string) []string {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]--
	}
	for line := range strings.Lines(after) {
		count[line]++
	}
	var changed []string
	for line, n := range count {
		if n != 0 {
			changed = append(changed, strings.TrimSpace(line))
		}
	}
	slices.Sort(changed)
	return changed
}
