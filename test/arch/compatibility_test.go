package arch

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

var namedTest = regexp.MustCompile("`(Test[A-Za-z0-9]*)`")

// TestCompatibility checks that each cell of docs/compatibility.md names tests that exist, or says that nothing was tested.
func TestCompatibility(t *testing.T) {
	exists := testNames(t)
	page, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	cells := 0
	for _, cell := range claims(string(page)) {
		cells++
		names := namedTest.FindAllStringSubmatch(cell, -1)
		if len(names) == 0 && !strings.HasPrefix(cell, "not tested") {
			t.Errorf("the cell %q names no test", cell)
		}
		for _, name := range names {
			if !exists[name[1]] {
				t.Errorf("the cell %q names %s, which does not exist", cell, name[1])
			}
		}
	}
	if cells < 20 {
		t.Errorf("found %d cells, want at least 20", cells)
	}
}

// testNames returns the names of all test functions of the tree.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	tree, err := Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range tree.files {
		for _, decl := range f.Syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.Test && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

// claims returns the cells of all tables but their first rows and columns.
func claims(page string) (cells []string) {
	for _, row := range tableRows(page) {
		cells = append(cells, row[1:]...)
	}
	return cells
}

// tableRows returns the cells of all tables by row, without their first rows.
func tableRows(page string) (all [][]string) {
	body := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			body = false
		case strings.HasPrefix(line, "|---"):
			body = true
		case body:
			var row []string
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
				row = append(row, strings.TrimSpace(cell))
			}
			all = append(all, row)
		}
	}
	return all
}
