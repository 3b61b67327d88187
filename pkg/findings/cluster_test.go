package findings

import (
	"bytes"
	"testing"
)

// TestProgress proves that a terminal shows how much was read and is left clean, and that nothing else is written to.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	left := int64(40)
	for _, p := range []*Progress{{}, {Out: &out}} {
		p.show("Services", 10, &left)
		p.show("Services", 50, nil)
		p.clear()
	}
	if want := "\r\x1b[KRead 10 of 50 Services\r\x1b[KRead 50 Services\r\x1b[K"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
