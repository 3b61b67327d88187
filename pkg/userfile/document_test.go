package userfile

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSplit checks where documents begin, which are left out, and what is read as JSON.
func TestSplit(t *testing.T) {
	for name, test := range map[string]struct {
		file, data string
		lines      []int
		errs       []string
	}{
		"markers, comments and directives": {"a.yaml", "%YAML 1.1\n# one\n---\na: 1\n...\n# two\n---\n---\n# three\n--- # four\nb: 1\n", []int{3, 10}, nil},
		"carriage returns":                 {"a.yaml", "a: 1\r\n---\r\nb: 1\r\n", []int{1, 2}, nil},
		"JSON by name":                     {"a.json", "\xef\xbb\xbf{\"a\": 1}\n\t{\"b\": 2}\n[", []int{1, 2}, []string{"line 3: not JSON: unexpected EOF"}},
		"JSON by content":                  {"-", "{\"a\": 1}\n{\"b\": 2}", []int{1, 2}, nil},
		"a mapping in braces":              {"-", "{a: 1}\n---\n{b: 2}\n", []int{1, 2}, nil},
		"nothing":                          {"a.yaml", "# nothing\n", nil, nil},
	} {
		docs, errs := Split(test.file, []byte(test.data))
		var lines []int
		for _, d := range docs {
			lines = append(lines, d.Line)
		}
		var told []string
		for _, err := range errs {
			told = append(told, fmt.Sprintf("line %d: %v", err.Line, err.Err))
		}
		if diff := cmp.Diff(test.lines, lines) + cmp.Diff(test.errs, told); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestLineOf checks that lines are those of the file, in YAML and JSON, with aliases and merge keys, and that a missing
// field has the line of its nearest parent.
func TestLineOf(t *testing.T) {
	docs, _ := Split("a.yaml", []byte("a: 1\n---\nspec:\n  x.y: 1\n  x:\n    y: [1,\n      2]\n  base: &b\n    n: 1\n  copy:\n    <<: *b\n    m: 2\n  same: *b\n  twice: 1\n  twice: 2\n"))
	jsons, _ := Split("a.json", []byte("\n{\n\t\"spec\": {\n\t\t\"x\": [\n1,\n{\"y\": 2}]}}"))
	for _, test := range []struct {
		doc  *Document
		path string
		want int
	}{
		{docs[1], "", 3}, {docs[1], "spec", 3}, {docs[1], "spec.x.y", 4}, {docs[1], "spec.x.y[1]", 4}, {docs[1], "spec.x.z", 5},
		{docs[1], "spec.copy.n", 9}, {docs[1], "spec.copy.m", 12}, {docs[1], "spec.same.n", 9}, {docs[1], "spec.twice", 15}, {docs[1], "status", 3},
		{jsons[0], "spec", 3}, {jsons[0], "spec.x[1].y", 6}, {jsons[0], "spec.x[7]", 4},
	} {
		if got := test.doc.LineOf(test.path); got != test.want {
			t.Errorf("%q is in line %d, want %d", test.path, got, test.want)
		}
	}
}

// TestSyntaxErrors checks that both parsers report the same lines.
func TestSyntaxErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n---\nb: [c\n":           "line 3: not YAML: did not find expected ',' or ']'",
		"a: 1\n---\nb:\n\tc: 1\n":      "line 4: not YAML: found character that cannot start any token",
		"a: 1\n---\nb: c\nd: e: f\n":   "line 4: not YAML: mapping values are not allowed in this context",
		"a: 1\n---\nb: *c\n":           "line 2: not YAML: unknown anchor 'c' referenced",
		"a: 1\n---\nb:\n - 1\n c: 2\n": "line 4: not YAML: did not find expected '-' indicator",
	} {
		docs, _ := Split("a.yaml", []byte(text))
		_, asJSON := docs[1].JSON()
		_, asNode := docs[1].Node()
		for _, errs := range [][]*LineError{asJSON, asNode} {
			if len(errs) != 1 || fmt.Sprintf("line %d: %v", errs[0].Line, errs[0].Err) != want {
				t.Errorf("errors of %q: %v, want %s", text, errs, want)
			}
		}
	}
	docs, _ := Split("a.yaml", []byte("a: 1\nb: 2\na: 3\nb: 4\n"))
	if _, errs := docs[0].JSON(); len(errs) != 2 || errs[0].Line != 3 || errs[1].Line != 4 {
		t.Errorf("errors of duplicate keys: %v", errs)
	}
}

// TestPathAt checks that an offset is mapped to its field.
func TestPathAt(t *testing.T) {
	text := []byte(`{"a": {"b": [1, "two"]}, "c": 3}`)
	for offset, want := range map[int64]string{1: "", 14: "a.b[0]", 21: "a.b[1]", int64(len(text)): "c"} {
		if got := PathAt(text, offset); got != want {
			t.Errorf("at %d: %q, want %q", offset, got, want)
		}
	}
}
