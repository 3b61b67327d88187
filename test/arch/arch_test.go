package arch

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestRepository applies every rule to this repository.
func TestRepository(t *testing.T) {
	tree, err := Load(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(tree.Packages, func(p *Package) bool { return p.Dir == "test/arch" }) {
		t.Fatalf("the tree of %s does not contain this package", tree.Module)
	}
	violations, err := tree.Check(Rules(House()))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Errorf("\n%s", v)
	}
}

// examples returns the trees in testdata, each with its own go.mod. The golden file next to each lists its violations.
func examples(t *testing.T) []string {
	t.Helper()
	mods, err := filepath.Glob(filepath.Join("testdata", "*", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, mod := range mods {
		dirs = append(dirs, filepath.Dir(mod))
	}
	return dirs
}

// exampleBudgets are small, so that the examples can be small too.
func exampleBudgets() Budgets {
	return Budgets{FunctionLines: 20, FileLines: 70, TestFileLines: 80, Parameters: 5}
}

// TestGoldenExamples applies every rule to every example: it must find exactly the violations of the golden file.
func TestGoldenExamples(t *testing.T) {
	for _, dir := range examples(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tree, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			violations, err := tree.Check(Rules(exampleBudgets()))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, v := range violations {
				got.WriteString(v.String() + "\n")
			}
			golden := dir + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
				t.Errorf("violations in %s (-want +got); if the change is intended, run make golden:\n%s", dir, diff)
			}
		})
	}
}

// TestEveryBadLineIsFound compares the golden files with the examples: a line must be reported if and only if it has a
// comment "bad:", or the line below it a comment "bad above". So updating golden files cannot hide a broken rule.
func TestEveryBadLineIsFound(t *testing.T) {
	for _, dir := range examples(t) {
		golden, err := os.ReadFile(dir + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(string(golden)) {
			file, rest, _ := strings.Cut(line, ":")
			number, _, _ := strings.Cut(rest, ":")
			if place := file + ":" + number; !slices.Contains(got, place) {
				got = append(got, place)
			}
		}
		if diff := cmp.Diff(badLines(t, dir), got); diff != "" {
			t.Errorf("%s: lines marked bad but not reported (-), lines reported but not marked (+):\n%s", dir, diff)
		}
	}
}

// TestEveryRuleHasAnExample checks that the examples violate each rule at least once.
func TestEveryRuleHasAnExample(t *testing.T) {
	var all string
	for _, dir := range examples(t) {
		golden, err := os.ReadFile(dir + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		all += string(golden)
	}
	for _, rule := range Rules(House()) {
		if !strings.Contains(all, `(rule "`+rule.Name+`" of test/arch)`) {
			t.Errorf("no example in testdata violates the rule %q", rule.Name)
		}
	}
}

// TestTablesAreOrdered checks that no row is hidden by an earlier one, and that no library is listed twice.
func TestTablesAreOrdered(t *testing.T) {
	for i, r := range rows {
		plain := strings.ReplaceAll(strings.TrimSuffix(r.packages, "/..."), "*", "x")
		for _, earlier := range rows[:i] {
			if _, ok := match(earlier.packages, plain); ok {
				t.Errorf("row %q is never reached: %q comes first", r.packages, earlier.packages)
			}
		}
	}
	seen := map[string]bool{}
	for _, lib := range libraries {
		for _, p := range lib.paths {
			if seen[p] {
				t.Errorf("library %q is listed twice", p)
			}
			seen[p] = true
		}
	}
}

// TestRowsAreUsed checks that every pattern in the import table matches a package of this repository.
func TestRowsAreUsed(t *testing.T) {
	tree, err := Load(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	used := func(pattern string) bool {
		return slices.ContainsFunc(tree.Packages, func(p *Package) bool { _, ok := match(pattern, p.Dir); return ok })
	}
	for _, r := range rows {
		for _, pattern := range append([]string{r.packages}, r.imports...) {
			if !used(pattern) {
				t.Errorf("row %q: no package matches %q; remove it", r.packages, pattern)
			}
		}
	}
	for _, pattern := range testImports {
		if !used(pattern) {
			t.Errorf("testImports: no package matches %q; remove it", pattern)
		}
	}
	for _, lib := range libraries {
		for _, user := range lib.users {
			if !strings.HasSuffix(user, ".go") && !used(user) {
				t.Errorf("library %q: no package matches its user %q; remove it", lib.paths[0], user)
			}
		}
	}
}

// TestMatch documents the patterns of the tables.
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

// badLines returns the places below dir that its files mark as bad, in the order of reports.
func badLines(t *testing.T, dir string) []string {
	t.Helper()
	var places []string
	err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		places = append(places, markedBad(filepath.ToSlash(rel), string(data))...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(places, func(a, b string) int {
		fileA, _, _ := strings.Cut(a, ":")
		fileB, _, _ := strings.Cut(b, ":")
		return strings.Compare(fileA, fileB)
	})
	return places
}

// markedBad returns the places that one file marks as bad.
func markedBad(name, text string) []string {
	var places []string
	above := 0 // the last non-empty line
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.Contains(line, "bad above"):
			places = append(places, name+":"+strconv.Itoa(above))
		case strings.Contains(line, "bad:"):
			places = append(places, name+":"+strconv.Itoa(i+1))
		}
		if strings.TrimSpace(line) != "" {
			above = i + 1
		}
	}
	return places
}
