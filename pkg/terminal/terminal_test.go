package terminal

import (
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 10, ""},
		{"one two  three", 0, "one two  three"},
		{"one two  three", 7, "one two\nthree"},
		{"unbreakable it is", 5, "unbreakable\nit is"},
		{"öäü öäü", 7, "öäü öäü"},
	} {
		if got := Wrap(test.text, test.width); got != test.want {
			t.Errorf("Wrap(%q, %d) = %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

// TestPrintable has the ends of both ranges of control characters, characters that reverse the text or that nobody sees, and
// bytes that are no characters.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"a\x00\x1b[2J\x1f ~\x7f\u0080\u009fü":  "a??[2J? ~???ü",
		"a\u202eb\u2066c\u2028d\u200be\ufefff": "a?b?c?d?e?f",
		"a\r\n\tb\u00a0c":                      "a???b?c",
		"\xff\xc3(":                            "\ufffd\ufffd(",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 Nodes", 1: "1 Node", 2: "2 Nodes"} {
		if got := Count(n, "Node"); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

// TestProgress checks that a terminal shows one line and is left clean, and that nothing else is written to.
func TestProgress(t *testing.T) {
	var out strings.Builder
	for _, p := range []*Progress{{}, {Out: &out}} {
		p.Clear()
		p.Show("Read %d of %s", 10, "\x1b")
		p.Show("Read all")
		p.Clear()
		p.Clear()
	}
	if want := "\r\x1b[KRead 10 of ?\r\x1b[KRead all\r\x1b[K"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
