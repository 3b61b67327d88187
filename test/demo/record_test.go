//go:build linux

package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRecord checks that a recording has the styles that a file does not get, and that the picture is valid XML with all of
// the text, each part at its column.
func TestRecord(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	r := s.record()
	s.line("%s 1 < 2 & ──┐", s.bold("The lab."))
	s.line("  %s", s.good("26     ·  node1"))
	if want := "The lab. 1 < 2 & ──┐\n  26     ·  node1\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	drawn := picture(r.String())
	for _, want := range []string{
		`<text x="0" y="13" textLength="64" class="b">The lab.</text>`,
		`<text x="72" y="13" textLength="88">1 &lt; 2 &amp; ──┐</text>`,
		`<text x="16" y="31" textLength="120" class="g">26     ·  node1</text>`,
	} {
		if !strings.Contains(drawn, want) {
			t.Errorf("the picture has no %s:\n%s", want, drawn)
		}
	}
	wellFormed(t, drawn)
	if strings.Contains(drawn, "animation") {
		t.Error("a single page is animated")
	}
}

// TestPages checks that pages begin after empty lines, that the last one is full, and that no line is left out.
func TestPages(t *testing.T) {
	lines := slices.Repeat([]string{"line"}, 70)
	lines[24], lines[40] = "", ""
	got := pages(lines)
	if want := []int{0, 25, 40}; !slices.Equal(got, want) {
		t.Errorf("pages begin at %v, want %v", got, want)
	}
	for i, start := range got {
		if i > 0 && start > got[i-1]+window {
			t.Errorf("page %d begins at line %d, and the one before it ends at line %d", i, start, got[i-1]+window)
		}
	}
	drawn := picture(strings.Join(lines, "\n"))
	for i, start := range got {
		if want := fmt.Sprintf("%.2f%% { transform: translateY(%dpx) }", 100*float64(i)/3, -start*lineHeight); !strings.Contains(drawn, want) {
			t.Errorf("no %s", want)
		}
	}
	wellFormed(t, drawn)
}

// TestRecordedPicture checks that the picture in docs shows a demo without errors, all parts of it.
func TestRecordedPicture(t *testing.T) {
	drawn, err := os.ReadFile("../../docs/images/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The lab.", "The Services of examples/.", "Changes.", "1,000 more Services.", "kube-proxy restarts.", "all with the expected result."} {
		if !strings.Contains(string(drawn), want) {
			t.Errorf("the picture lacks %q; record it again: go run ./test/demo -record docs/images/demo.svg", want)
		}
	}
	for _, service := range shop() {
		if !strings.Contains(string(drawn), service.name+"</text>") {
			t.Errorf("the picture lacks the service %s; record it again: go run ./test/demo -record docs/images/demo.svg", service.name)
		}
	}
	wellFormed(t, string(drawn))
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}
