package terminal

import "testing"

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
