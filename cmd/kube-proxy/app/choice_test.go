package app

import "testing"

// TestChoice sets each value of a flag, and one that is none of them.
func TestChoice(t *testing.T) {
	value := "none"
	flag := oneOf(&value, "none", "service", "endpoint")
	for _, text := range []string{"endpoint", "service", "none"} {
		if err := flag.Set(text); err != nil || value != text || flag.String() != text {
			t.Errorf("%s: %s, %v", text, value, err)
		}
	}
	if err := flag.Set("all"); err == nil || err.Error() != "must be none, service or endpoint" || value != "none" {
		t.Errorf("all: %s, %v", value, err)
	}
}
