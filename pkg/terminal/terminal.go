// Package terminal prepares texts for a terminal, and shows progress on it.
package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Wrap breaks a paragraph into lines of at most width runes; 0 does not break it. A longer word is not broken.
func Wrap(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch length := utf8.RuneCountInString(word); {
		case column == 0:
			column = length
		case column+1+length > width:
			b.WriteByte('\n')
			column = length
		default:
			b.WriteByte(' ')
			column += 1 + length
		}
		b.WriteString(word)
	}
	return b.String()
}

// Printable replaces by question marks what is not a visible character or a space: control characters, which a terminal would
// interpret, and characters that change the direction of the text or have no width. Objects may have been written to deceive
// their reader.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// Count returns a number and its noun, such as "1 endpoint" or "2 endpoints".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// clearLine moves the cursor of a terminal to the begin of its line and clears it.
const clearLine = "\r\x1b[K"

// Progress is a line on a terminal that changes while a command works. The zero value shows nothing. A failure to show it is no error.
type Progress struct {
	// Out is the terminal.
	Out   io.Writer
	shown bool
}

// Show replaces the line.
func (p *Progress) Show(format string, args ...any) {
	if p.Out != nil {
		p.shown = true
		fmt.Fprint(p.Out, clearLine, Printable(fmt.Sprintf(format, args...)))
	}
}

// Clear removes the line.
func (p *Progress) Clear() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.Out, clearLine)
	}
}
