//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// screen is the demo's output: plain text, with colours on a terminal.
type screen struct {
	out    io.Writer
	colour bool
}

// newScreen returns a screen that prints to file. It uses colours if file is a terminal and NO_COLOR is not set
// (https://no-color.org).
func newScreen(file *os.File) *screen {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return &screen{out: file, colour: err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// line prints a line without trailing spaces.
func (s *screen) line(format string, args ...any) {
	fmt.Fprintln(s.out, strings.TrimRight(fmt.Sprintf(format, args...), " \n"))
}

// Text styles, by the codes of ECMA-48 section 8.3.117.
func (s *screen) bold(text string) string  { return s.look("1", text) }
func (s *screen) faint(text string) string { return s.look("2", text) }
func (s *screen) good(text string) string  { return s.look("1;32", text) }
func (s *screen) bad(text string) string   { return s.look("1;31", text) }

func (s *screen) look(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// row is a line of the table of services.
type row struct {
	from, way, to string
	// counts has a column for each pod, followed by seen; if no connection is answered, outcome takes their place.
	counts  []string
	seen    string
	outcome string
}

func (r row) String() string {
	var line strings.Builder
	fmt.Fprintf(&line, "  %-6s  %-17s  %-23s", r.from, r.way, r.to)
	for _, count := range r.counts {
		fmt.Fprintf(&line, "%6s", count)
	}
	line.WriteString("  " + r.seen + r.outcome)
	return strings.TrimRight(line.String(), " ")
}

// indent indents a text by two columns.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n  ")
}

// commandLine formats a command for a shell, in lines of up to 90 columns.
func commandLine(program string, arguments []string) string {
	text, width := program, len(program)
	for pair := range slices.Chunk(arguments, 2) {
		next := strings.Join(pair, " ")
		if width += 1 + len(next); width > 88 {
			text += " \\\n   "
			width = 4 + len(next)
		}
		text += " " + next
	}
	return text
}

// count formats a number of the table; zero is a dot.
func count(n int) string {
	if n == 0 {
		return "·"
	}
	return strconv.Itoa(n)
}

// milliseconds formats a duration in milliseconds.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// thousands formats a number with commas between groups of three digits.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// times are the durations of several attempts.
type times []time.Duration

func (t times) median() time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[len(sorted)/2]
}

// note describes the range of the durations.
func (t times) note() string {
	return fmt.Sprintf("median of %d, from %s to %s", len(t), milliseconds(slices.Min(t)), milliseconds(slices.Max(t)))
}

// effect formats a line of the list of changes: the change, a figure, and a note.
func effect(what, figure, note string) string {
	return strings.TrimRight(fmt.Sprintf("  %-52s %9s  %s", what, figure, note), " ")
}
