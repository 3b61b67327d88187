package hostile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// known lists the published weaknesses of kube-proxy, other service proxies and components with similar ports.
var known = []string{
	"CVE-2019-11248", "CVE-2020-8554", "CVE-2020-8558", "CVE-2021-25736", "CVE-2021-25737", "CVE-2021-25740", "CVE-2023-3676",
	"CVE-2023-3955", "CVE-2023-27595", "CVE-2023-44487", "CVE-2024-9042", "GHSA-phqm-jgc3-qf8g", "GHSA-q6h5-q3q6-f87x",
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	caseName = regexp.MustCompile("`(test/cases/[a-z0-9-]+\\.txtar)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
)

// TestThreatModel checks that docs/threat-model.md is true: every test and case that it names exists, every attack names one, and
// every known weakness has a row.
func TestThreatModel(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := tests(t)
	section := ""
	for line := range strings.Lines(string(page)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(heading)
		}
		named := testName.FindAllStringSubmatch(line, -1)
		for _, name := range named {
			if !exists[name[1]] {
				t.Errorf("there is no test %s", name[1])
			}
		}
		files := caseName.FindAllStringSubmatch(line, -1)
		for _, file := range files {
			if _, err := os.Stat(filepath.Join(root, file[1])); err != nil {
				t.Error(err)
			}
		}
		attack := strings.HasPrefix(section, "Who may") || section == "Others"
		if row := strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| attack"); attack && row && len(named)+len(files) == 0 {
			t.Errorf("no test shows it: %s", line)
		}
	}
	_, table, _ := strings.Cut(string(page), "## Known weaknesses")
	for _, id := range known {
		if !regexp.MustCompile(`(?m)^\| [^|]*` + id).MatchString(table) {
			t.Errorf("%s has no row", id)
		}
	}
}

// tests returns the names of all tests in the repository.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, found := range testFunc.FindAllSubmatch(source, -1) {
			names[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
