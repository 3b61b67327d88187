// Package terminal prepares texts for a terminal.
package terminal

import (
	"fmt"
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
