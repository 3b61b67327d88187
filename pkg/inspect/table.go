package inspect

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// gap is the space between columns, as in kubectl, and narrowGap that on a terminal with fewer columns than narrow.
const (
	gap       = 3
	narrowGap = 2
	narrow    = 80
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

// minLast is the least width of the last column beside the others; where there is less it gets a line of its own.
const minLast = 24

// print prints the table.
func (t *table) print(out io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		t.line(&b, widths, row)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (t *table) line(b *strings.Builder, widths []int, row []string) {
	line, at, gap := t.indent, len(t.indent), gap
	if t.width > 0 && t.width < narrow {
		gap = narrowGap
	}
	for i, cell := range row[:len(row)-1] {
		line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap)
		at += widths[i] + gap
	}
	last := row[len(row)-1]
	if t.width == 0 || at+utf8.RuneCountInString(last) <= t.width {
		b.WriteString(strings.TrimRight(line+last, " ") + "\n")
		return
	}
	if t.width-at < minLast {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		line, at = t.indent+"    ", len(t.indent)+4
	}
	for i, part := range strings.Split(terminal.Wrap(last, t.width-at), "\n") {
		if i > 0 {
			line = strings.Repeat(" ", at)
		}
		b.WriteString(strings.TrimRight(line+part, " ") + "\n")
	}
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
