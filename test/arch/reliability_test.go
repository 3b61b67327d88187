package arch

import (
	"os"
	"strings"
	"testing"
)

// TestReliability checks that each row of docs/reliability.md has a fault, a promise, and tests that exist.
func TestReliability(t *testing.T) {
	exists := testNames(t)
	page, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	all := tableRows(string(page))
	for _, row := range all {
		if len(row) != 3 {
			t.Errorf("the row %q has %d cells, want a fault, a promise and tests", row, len(row))
			continue
		}
		names := namedTest.FindAllStringSubmatch(row[2], -1)
		if len(names) == 0 {
			t.Errorf("the row of %q names no test", row[0])
		}
		for _, name := range names {
			if !exists[name[1]] {
				t.Errorf("the row of %q names %s, which does not exist", row[0], name[1])
			}
		}
		for _, cell := range row {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("the row of %q has an empty cell", row[0])
			}
		}
	}
	if len(all) < 20 {
		t.Errorf("found %d rows, want at least 20", len(all))
	}
}
