package inspect

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

const (
	// gap is the space between columns, as in kubectl, and narrowGap that on a terminal with fewer columns than narrow.
	gap       = 3
	narrowGap = 2
	narrow    = 80
	// minLast is the least width of the last column beside the others; where there is less it gets a line of its own.
	minLast = 24
)

// table prints rows in columns, as kubectl does. A text in the last column that does not fit the terminal is continued below.
type table struct {
	// width is that of the terminal; 0 means that there is none, and nothing is wrapped.
	width int
	// indent begins each line.
	indent string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print prints the table.
func (t *table) print(out io.Writer) error {
	space := gap
	if t.width > 0 && t.width < narrow {
		space = narrowGap
	}
	var columns, b bytes.Buffer
	w := tabwriter.NewWriter(&columns, 0, 0, space, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(w, t.indent+strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, row := range t.rows {
		line, _ := columns.ReadString('\n')
		last := row[len(row)-1]
		t.wrap(&b, strings.TrimSuffix(line, last+"\n"), last)
	}
	_, err := b.WriteTo(out)
	return err
}

// wrap prints the last cell of a row behind the others.
func (t *table) wrap(b *bytes.Buffer, before, last string) {
	at := utf8.RuneCountInString(before)
	if t.width > 0 && at+utf8.RuneCountInString(last) > t.width {
		if t.width-at < minLast {
			fmt.Fprintln(b, strings.TrimRight(before, " "))
			before, at = t.indent+"    ", len(t.indent)+4
		}
		last = strings.ReplaceAll(terminal.Wrap(last, t.width-at), "\n", "\n"+strings.Repeat(" ", at))
	}
	fmt.Fprintln(b, strings.TrimRight(before+last, " "))
}

// orNone joins texts, or returns <none> as kubectl does.
func orNone(values []string) string {
	if len(values) == 0 {
		return "<none>"
	}
	return strings.Join(values, ",")
}

// number formats a count that may be unknown.
func number[T any](n *T) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
