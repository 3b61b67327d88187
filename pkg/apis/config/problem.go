package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is an error in a file.
type Problem struct {
	File   string `json:"-"`
	Line   int    `json:"line,omitempty"`  // from 1; 0 if unknown
	Field  string `json:"field,omitempty"` // path of the field in the file's version; empty if there is none
	Detail string `json:"message"`
}

// String returns "file:line: field: detail".
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

// Problems are all errors in a file.
type Problems []Problem

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// orNil returns nil for an empty list.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p.sorted()
}

// sorted sorts by line; problems without a line come last.
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
