package config

import (
	"slices"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// TestEveryFieldIsExplained checks that each field has a comment that begins with its name, and that those of durations describe 0.
func TestEveryFieldIsExplained(t *testing.T) {
	fields := Fields()
	if len(fields) < 70 {
		t.Errorf("only %d fields were found; there are more", len(fields))
	}
	for _, f := range fields {
		name := f.Path[strings.LastIndex(f.Path, ".")+1:]
		if !strings.HasPrefix(f.Doc, name+" ") || !strings.HasSuffix(strings.TrimSuffix(f.Doc, ")"), ".") {
			t.Errorf("%s: the comment is not a sentence that begins with its name: %q", f.Path, f.Doc)
		}
		if f.Type == "duration" && !strings.Contains(f.Doc, "0") {
			t.Errorf("%s: the comment does not say what 0 means: %q", f.Path, f.Doc)
		}
		if (f.Type == "boolean" || f.Type == "integer" || f.Type == "duration") && f.Default == "" && !strings.Contains(f.Path, "[]") {
			t.Errorf("%s: no default", f.Path)
		}
	}
}

// TestFind finds fields by the names of both versions.
func TestFind(t *testing.T) {
	fields := Fields()
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
		f, within, err := FindField(fields, path)
		if err != nil || f.Path != want.path || f.Type != want.typ || f.Default != want.def || f.V1alpha1 != want.old || len(within) != want.within {
			t.Errorf("%s: got %+v with %d fields, %v; want %+v", path, f, len(within), err, want)
		}
	}
	if _, _, err := FindField(fields, "portRange"); err == nil || !strings.Contains(err.Error(), "has no effect") {
		t.Errorf("a field that is gone: %v", err)
	}
}

// TestFindV1alpha1 finds every field of v1alpha1 by its name there.
func TestFindV1alpha1(t *testing.T) {
	fields := Fields()
	data, err := Encode(DefaultV1alpha1(), V1alpha1)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := sigsyaml.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	found := 0
	var visit func(path string, value any)
	visit = func(path string, value any) {
		if section, ok := value.(map[string]any); ok {
			for name, inner := range section {
				visit(userfile.Member(path, name), inner)
			}
		}
		if path == "" || path == "apiVersion" || path == "kind" || path == "portRange" {
			return
		}
		found++
		if _, _, err := FindField(fields, path); err != nil {
			t.Error(err)
		}
	}
	visit("", tree)
	if found < 60 {
		t.Errorf("only %d fields of v1alpha1 were tried", found)
	}
}

// TestOldDefaults checks that exactly the defaults that differ between the versions are marked.
func TestOldDefaults(t *testing.T) {
	fields := Fields()
	var differ []string
	for _, f := range fields {
		if f.OldDefault != "" {
			differ = append(differ, f.Path+" "+f.Default+" "+f.OldDefault)
		}
	}
	want := []string{"bindAddressHardFail true false", "configHardFail true false", "iptables.localhostNodePorts false true"}
	if !slices.Equal(differ, want) {
		t.Errorf("got %q, want %q", differ, want)
	}
}
