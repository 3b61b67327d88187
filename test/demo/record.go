//go:build linux

package main

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The picture's measures: in pixels, except for the number of lines that are visible at once and of seconds that they stay.
const (
	cellWidth, lineHeight, margin = 8, 18, 16
	window                        = 30
	stay                          = 6
)

// escape is a text style, as look writes it.
var escape = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// plain removes the text styles from what passes through it to out.
type plain struct{ out io.Writer }

func (p plain) Write(text []byte) (int, error) {
	if _, err := p.out.Write(escape.ReplaceAll(text, nil)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// recording is a copy of the demo's output, with text styles.
type recording struct{ bytes.Buffer }

// record makes s keep a copy of all that it prints.
func (s *screen) record() *recording {
	r := &recording{}
	if !s.colour {
		s.out, s.colour = plain{s.out}, true
	}
	s.out = io.MultiWriter(s.out, r)
	return r
}

// save writes the recording as an SVG to a file.
func (r *recording) save(path string) error {
	return os.WriteFile(path, []byte(picture(r.String())), 0o644) //nolint:gosec // it is published
}

// picture draws a text with styles as an SVG that needs no other file: a terminal that scrolls from page to page. If the
// viewer prefers no motion, or cannot animate, it shows the last page.
func picture(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	columns := 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(escape.ReplaceAllString(line, "")))
	}
	starts := pages(lines)
	width, height := columns*cellWidth+2*margin, window*lineHeight+2*margin
	last := starts[len(starts)-1]

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">`+"\n", width, height)
	b.WriteString("<title>The output of make demo</title>\n<style>\n")
	b.WriteString("text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #d0d7de; white-space: pre }\n")
	b.WriteString(".b { font-weight: bold; fill: #fff } .f { fill: #8b949e } .g { font-weight: bold; fill: #3fb950 } .r { font-weight: bold; fill: #f85149 }\n")
	fmt.Fprintf(&b, "#pages { transform: translateY(%dpx) }\n", -last*lineHeight)
	if len(starts) > 1 {
		fmt.Fprintf(&b, "@media (prefers-reduced-motion: no-preference) { #pages { animation: scroll %ds step-end infinite } }\n", stay*len(starts))
		b.WriteString("@keyframes scroll {")
		for i, start := range starts {
			fmt.Fprintf(&b, " %.2f%% { transform: translateY(%dpx) }", 100*float64(i)/float64(len(starts)), -start*lineHeight)
		}
		b.WriteString(" }\n")
	}
	b.WriteString("</style>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<svg x="%d" y="%[1]d" width="%d" height="%d"><g id="pages">`+"\n", margin, columns*cellWidth, window*lineHeight)
	for i, line := range lines {
		drawLine(&b, line, i*lineHeight+lineHeight-5)
	}
	b.WriteString("</g></svg>\n</svg>\n")
	return b.String()
}

// drawLine writes the parts of a line, each in its style and at its column, whatever font the viewer has.
func drawLine(b *strings.Builder, line string, y int) {
	classes := map[string]string{"1": "b", "2": "f", "1;32": "g", "1;31": "r"}
	class, column := "", 0
	draw := func(part string) {
		text := strings.TrimLeft(part, " ")
		start := column + len(part) - len(text)
		if width := utf8.RuneCountInString(text); width > 0 {
			fmt.Fprintf(b, `<text x="%d" y="%d" textLength="%d"`, start*cellWidth, y, width*cellWidth)
			if class != "" {
				fmt.Fprintf(b, ` class="%s"`, class)
			}
			b.WriteString(">" + html.EscapeString(text) + "</text>\n")
		}
		column += utf8.RuneCountInString(part)
	}
	for {
		at := escape.FindStringSubmatchIndex(line)
		if at == nil {
			draw(line)
			return
		}
		draw(line[:at[0]])
		class, line = classes[line[at[2]:at[3]]], line[at[1]:]
	}
}

// pages returns the first line of each page. A page ends before the last empty line that fits, so that it shows whole parts
// of the demo where these are short enough; the last page is full.
func pages(lines []string) []int {
	starts := []int{0}
	for start := 0; len(lines)-start > window; {
		next := start + window
		for at := next; at > start+window/2; at-- {
			if lines[at] == "" {
				next = at + 1
				break
			}
		}
		start = min(next, len(lines)-window)
		starts = append(starts, start)
	}
	return starts
}
