package explain

import (
	"strings"
	"testing"
)

// TestEveryFieldIsExplained proves that each field has a comment that begins with its name, and that durations and
// numbers tell their unit or range.
func TestEveryFieldIsExplained(t *testing.T) {
	fields, err := Fields()
	if err != nil {
		t.Fatal(err)
	}
	if len(fields) < 70 {
		t.Errorf("only %d fields were found; there are more", len(fields))
	}
	for _, f := range fields {
		name := f.Path[strings.LastIndex(f.Path, ".")+1:]
		if !strings.HasPrefix(f.Doc, name+" ") || !strings.HasSuffix(strings.TrimSuffix(f.Doc, ")"), ".") {
			t.Errorf("%s: the comment is not a sentence that begins with its name: %q", f.Path, f.Doc)
		}
		if f.Type == "duration" && !strings.Contains(f.Doc, "duration") && !strings.Contains(f.Doc, "Duration") {
			t.Errorf("%s: the comment does not say that it is a duration, and what 0 means: %q", f.Path, f.Doc)
		}
		if (f.Type == "boolean" || f.Type == "integer" || f.Type == "duration") && f.Default == "" && !strings.Contains(f.Path, "[]") {
			t.Errorf("%s: no default", f.Path)
		}
	}
}

// TestFind proves that fields are found by both versions' names.
func TestFind(t *testing.T) {
	fields, err := Fields()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		path, typ, def, old string
		within              int
	}{
		"linux.oomScoreAdj": {"linux.oomScoreAdj", "integer", "-999", "oomScoreAdj", 0},
		"oomScoreAdj":       {"linux.oomScoreAdj", "integer", "-999", "oomScoreAdj", 0},
		"conntrack.min":     {"linux.conntrack.min", "integer", "131072", "conntrack.min", 0},
		"syncPeriod":        {"syncPeriod", "duration", "30s", "<active mode>.syncPeriod", 0},
		"configHardFail":    {"configHardFail", "boolean", "true", "", 0},
		"logging.vmodule":   {"logging.vmodule", "list of sections", "", "logging.vmodule", 2},
		"linux":             {"linux", "section", "", "", 10},
	} {
		f, within, err := Find(fields, path)
		if err != nil || f.Path != want.path || f.Type != want.typ || f.Default != want.def || f.V1alpha1 != want.old || len(within) != want.within {
			t.Errorf("%s: got %+v with %d fields, %v; want %+v", path, f, len(within), err, want)
		}
	}
	if _, _, err := Find(fields, "portRange"); err == nil {
		t.Error("a field that is gone was found")
	}
}
