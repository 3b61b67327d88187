package configfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	File   string
	Line   int    // from 1; 0 if it belongs to no line
	Field  string // path of the field in the file's version; empty if it belongs to none
	Detail string
}

// String gives "file:line: field: detail".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Detail)
	return b.String()
}

// Problems is all that is wrong in a file. As an error it tells one a line.
type Problems []Problem

// Error gives one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// orNil makes an empty list no error.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p.sorted()
}

// sorted orders by line; what belongs to no line comes last.
func (p Problems) sorted() Problems {
	sorted := slices.Clone(p)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Compare(a.Line, b.Line)
	})
	return sorted
}
