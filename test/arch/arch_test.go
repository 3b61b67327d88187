package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestRepository applies every rule to this repository.
func TestRepository(t *testing.T) {
	house := load(t, root)
	if len(house.files) < 500 {
		t.Fatalf("found %d files", len(house.files))
	}
	for _, found := range house.check(t, root) {
		t.Error("\n" + found)
	}
}

// TestExamples applies every rule to every tree of testdata: exactly the lines with a comment "bad:" must be found.
func TestExamples(t *testing.T) {
	examples, err := filepath.Glob("testdata/*/go.mod")
	if err != nil || len(examples) < 5 {
		t.Fatal(examples, err)
	}
	for _, mod := range examples {
		t.Run(filepath.Base(filepath.Dir(mod)), func(t *testing.T) {
			example := load(t, filepath.Dir(mod))
			var got, want []string
			for _, found := range example.check(t, filepath.Dir(mod)) {
				parts := strings.SplitN(found, ":", 3)
				got = append(got, parts[0]+":"+parts[1])
			}
			for _, f := range example.files {
				src, err := os.ReadFile(filepath.Join(filepath.Dir(mod), f.name))
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, badLines(f.name, src)...)
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
				t.Errorf("lines marked bad but not found (-), found but not marked (+):\n%s\n%s", diff, strings.Join(example.found, "\n"))
			}
		})
	}
}

// TestLength has the longest file and test that are allowed, and one line more.
func TestLength(t *testing.T) {
	for _, c := range []struct {
		lines, bad int
		test       bool
	}{{500, 0, false}, {501, 1, false}, {1000, 0, true}, {1001, 1, true}} {
		example := &tree{fset: token.NewFileSet()}
		syntax, err := parser.ParseFile(example.fset, "a.go", "package a"+strings.Repeat("\n//", c.lines-1), parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if example.length(&file{syntax: syntax, test: c.test}); len(example.found) != c.bad {
			t.Errorf("%+v: found %q", c, example.found)
		}
	}
}

// TestTable checks that no row is hidden by an earlier one, and that every pattern matches a folder.
func TestTable(t *testing.T) {
	dirs := map[string]bool{}
	for _, f := range load(t, root).files {
		dirs[f.dir] = true
	}
	patterns := slices.Clone(testImports)
	for i, r := range rows {
		patterns = append(append(patterns, r.packages), r.imports...)
		plain := strings.ReplaceAll(strings.TrimSuffix(r.packages, "/..."), "*", "x")
		for _, earlier := range rows[:i] {
			if _, ok := match(earlier.packages, plain); ok {
				t.Errorf("row %q is never reached: %q comes first", r.packages, earlier.packages)
			}
		}
	}
	for _, pattern := range patterns {
		used := false
		for dir := range dirs {
			_, ok := match(pattern, dir)
			used = used || ok
		}
		if !used {
			t.Errorf("no package matches %q: remove it from test/arch/imports.go", pattern)
		}
	}
}

// TestMatch documents the patterns of the table.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, dir, own string
		ok                bool
	}{
		{"pkg/proxy", "pkg/proxy", "pkg/proxy", true},
		{"pkg/proxy", "pkg/proxy/plan", "", false},
		{"pkg/proxy/...", "pkg/proxy", "pkg/proxy", true},
		{"pkg/proxy/...", "pkg/proxy/plan/deep", "pkg/proxy", true},
		{"pkg/proxy/...", "pkg/proxyx", "", false},
		{"pkg/kernel/*/...", "pkg/kernel", "", false},
		{"pkg/kernel/*/...", "pkg/kernel/nft/nfttest", "pkg/kernel/nft", true},
		{"pkg/kernel/*", "pkg/kernel/nft/nfttest", "", false},
	} {
		if own, ok := match(c.pattern, c.dir); own != c.own || ok != c.ok {
			t.Errorf("match(%q, %q) = %q, %v; want %q, %v", c.pattern, c.dir, own, ok, c.own, c.ok)
		}
	}
}

// TestProgramHasFewKinds checks that the program does not contain every kind of every API group by a package that another one imports:
// it was 45 % larger with them, and each process 8 MB (pkg/apiclient). The linter checks our own imports.
func TestProgramHasFewKinds(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "./cmd/kube-proxy")
	list.Dir = root
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/discovery", "k8s.io/client-go/informers", "k8s.io/client-go/listers",
		"k8s.io/component-base/metrics/prometheus/clientgo"} {
		if strings.Contains("\n"+string(packages), "\n"+heavy) {
			t.Errorf("cmd/kube-proxy contains %s: go list -json -deps ./cmd/kube-proxy shows what imports it", heavy)
		}
	}
}

// load parses every Go file below dir, in which a go.mod is, that the go command does not ignore.
func load(t *testing.T, dir string) *tree {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	module, _, _ := strings.Cut(strings.TrimPrefix(string(mod), "module "), "\n")
	loaded := &tree{module: module, fset: token.NewFileSet()}
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (base == "testdata" || base == "bin" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(base) != ".go":
			return nil
		}
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(loaded.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil && !ast.IsGenerated(syntax) {
			loaded.files = append(loaded.files, &file{name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), syntax: syntax})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// check returns what is bad, sorted.
func (t *tree) check(tb testing.TB, dir string) []string {
	tb.Helper()
	for _, f := range t.files {
		for _, rule := range rules {
			rule(t, f)
		}
	}
	t.typed(tb, dir)
	slices.Sort(t.found)
	return t.found
}
