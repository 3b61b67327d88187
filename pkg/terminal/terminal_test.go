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

// TestPrintable has the ends of both ranges of control characters.
func TestPrintable(t *testing.T) {
	if got, want := Printable("a\x00\x1b[2J\x1f ~\x7f\u0080\u009f\u00a0ü"), "a??[2J? ~???\u00a0ü"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
