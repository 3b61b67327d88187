package terminal

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

const (
	// gap is the space between columns, as in kubectl, and narrowGap that on a narrow terminal.
	gap       = 3
	narrowGap = 2
	// minLast is the least width of the last column beside the others; where there is less it gets a line of its own.
	minLast = 24
)

// Narrow reports whether a terminal of this width has no room for many columns; 0 is no terminal.
func Narrow(width int) bool { return width > 0 && width < 80 }

// Table shows rows in columns, as kubectl does. A text in the last column that does not fit the terminal is continued below.
type Table struct {
	// Width is that of the terminal; 0 means that there is none, and nothing is wrapped.
	Width int
	// Indent begins each line.
	Indent string
	// Gap is the space between columns; 0 leaves it to the width.
	Gap  int
	rows [][]string
}

// Add adds a row of texts, which it makes printable.
func (t *Table) Add(cells ...string) {
	for i := range cells {
		cells[i] = Printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// String returns the lines of the table.
func (t *Table) String() string {
	space := gap
	if Narrow(t.Width) {
		space = narrowGap
	}
	var columns bytes.Buffer
	w := tabwriter.NewWriter(&columns, 0, 0, cmp.Or(t.Gap, space), ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(w, t.Indent+strings.Join(row, "\t"))
	}
	_ = w.Flush() // a buffer takes everything
	var b strings.Builder
	for _, row := range t.rows {
		line, _ := columns.ReadString('\n')
		last := row[len(row)-1]
		t.wrap(&b, strings.TrimSuffix(line, last+"\n"), last)
	}
	return b.String()
}

// wrap writes the last cell of a row behind the others.
func (t *Table) wrap(out io.Writer, before, last string) {
	at := utf8.RuneCountInString(before)
	if t.Width > 0 && at+utf8.RuneCountInString(last) > t.Width {
		if t.Width-at < minLast {
			fmt.Fprintln(out, strings.TrimRight(before, " "))
			before, at = t.Indent+"    ", len(t.Indent)+4
		}
		last = strings.ReplaceAll(Wrap(last, t.Width-at), "\n", "\n"+strings.Repeat(" ", at))
	}
	fmt.Fprintln(out, strings.TrimRight(before+last, " "))
}
