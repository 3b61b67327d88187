package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func pages(t *testing.T) []Page {
	t.Helper()
	all, err := Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("found %d pages", len(all))
	}
	return all
}

// TestParse parses a page with everything that the other tests look for.
func TestParse(t *testing.T) {
	page, err := parse("# One `two`, three!\n[a](b.md#c) and `[no](link)`\n```console\n$ make x \\\n    y   # why\noutput\n$ z\n```\n```sh\n# comment\nkube-proxy\n```\n" +
		"````text\n```\n[no](link)\n````\n## Same\n## Same\n<img src=\"p.svg\">\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"make x y", "z", "kube-proxy"}, page.Commands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b.md#c", "p.svg"}, page.Links()); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"one-two-three", "same", "same-1"}, page.Anchors()); diff != "" {
		t.Errorf("anchors (-want +got):\n%s", diff)
	}
	if _, err := parse("```sh\nmake\n"); err == nil {
		t.Error("no error for a block that does not end")
	}
}

// TestLinks checks that every relative link of every page leads to a file of the repository, and to a heading if it names one.
func TestLinks(t *testing.T) {
	byPath := map[string]Page{}
	for _, page := range pages(t) {
		byPath[page.Path] = page
	}
	for _, page := range byPath {
		for _, target := range page.Links() {
			link, err := url.Parse(target)
			if err != nil {
				t.Errorf("%s: %v", page.Path, err)
				continue
			}
			if link.Scheme != "" {
				continue
			}
			file := page.Path
			if link.Path != "" {
				file = path.Join(path.Dir(page.Path), link.Path)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: the link %s: %v", page.Path, target, err)
				continue
			}
			if to, ok := byPath[file]; link.Fragment != "" && (!ok || !slices.Contains(to.Anchors(), link.Fragment)) {
				t.Errorf("%s: the link %s: %s has no such heading; it has %q", page.Path, target, file, to.Anchors())
			}
		}
	}
}

// TestIndex checks that docs/README.md links to every page of docs, and docs/decisions/README.md to every decision.
func TestIndex(t *testing.T) {
	all := pages(t)
	links := map[string][]string{}
	for _, page := range all {
		links[page.Path] = page.Links()
	}
	for _, page := range all {
		name, ok := strings.CutPrefix(page.Path, "docs/")
		index := "docs/README.md"
		if decision, yes := strings.CutPrefix(name, "decisions/0"); yes {
			name, index = "0"+decision, "docs/decisions/README.md"
		}
		if ok && page.Path != index && !slices.Contains(links[index], name) {
			t.Errorf("%s has no link to %s", index, name)
		}
	}
}

// TestTargets checks that every `make` command of a page names targets of the Makefile.
func TestTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range pages(t) {
		for _, command := range page.Commands() {
			words := strings.Fields(command)
			if words[0] != "make" {
				continue
			}
			for _, target := range words[1:] {
				checked++
				if !strings.Contains(target, "=") && !strings.Contains(string(makefile), "\n"+target+":") {
					t.Errorf("%s: %s: the Makefile has no target %s", page.Path, command, target)
				}
			}
		}
	}
	if checked < 5 {
		t.Errorf("checked %d targets", checked)
	}
}

// TestNeeds checks that README.md names everything that `make test` and `make demo` install.
func TestNeeds(t *testing.T) {
	names := map[string]string{
		"go": "Go", "namespaces": "root", "cc": "C compiler", "nft": "nftables", "ip": "iproute2", "promtool": "Prometheus",
		"qemu-aarch64-static": "QEMU", "qemu-system-x86_64": "QEMU", "chromium": "Chromium",
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, laboratory, _ := strings.Cut(string(makefile), "\nLABORATORY := ")
	laboratory, _, _ = strings.Cut(laboratory, "\n")
	for _, target := range []string{"test", "demo"} {
		_, recipe, _ := strings.Cut(string(makefile), "\n"+target+": ##")
		_, needs, found := strings.Cut(recipe, "@build/need.sh ")
		if !found || laboratory == "" {
			t.Fatalf("the Makefile's target %s does not begin with build/need.sh", target)
		}
		needs, _, _ = strings.Cut(needs, "\n")
		for need := range strings.FieldsSeq(strings.ReplaceAll(needs, "$(LABORATORY)", laboratory)) {
			name := need
			if names[need] != "" {
				name = names[need]
			}
			if !strings.Contains(string(readme), name) {
				t.Errorf("README.md does not say that make %s needs %s", target, name)
			}
		}
	}
}

// TestExercise checks that the exercise of CONTRIBUTING.md matches the tree: the lines to delete, the lines that
// change, and the packets.
func TestExercise(t *testing.T) {
	const page = "CONTRIBUTING.md"
	all := pages(t)
	i := slices.IndexFunc(all, func(p Page) bool { return p.Path == page })
	if i < 0 {
		t.Fatal("there is no " + page)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	example := read("test/cases/external-policy-local-elsewhere.txtar")
	if n := strings.Count(example, "\nclient > "); n != 2 || strings.Count(example, "= dropped\n") != 2 {
		t.Errorf("want two packets of the client that are dropped in the case, as %s says", page)
	}
	checked := 0
	for _, block := range all[i].Blocks {
		switch block.Language {
		case "go":
			checked++
			if !strings.Contains(read("pkg/proxy/plan/service.go"), strings.Join(block.Lines, "\n")) {
				t.Errorf("pkg/proxy/plan/service.go does not contain the lines that %s deletes:\n%s", page, strings.Join(block.Lines, "\n"))
			}
		case "diff":
			for _, line := range block.Lines {
				if strings.HasPrefix(line, "+") {
					continue
				}
				checked++
				if !strings.Contains(example, "\n"+line[1:]+"\n") {
					t.Errorf("the case does not contain the line that %s changes: %s", page, line)
				}
			}
		}
	}
	if checked < 4 {
		t.Errorf("checked %d blocks and lines", checked)
	}
}

// TestNames checks that each test, fuzz target and case that a page names in code exists: they are links too.
func TestNames(t *testing.T) {
	source := sources(t, root, "_test.go")
	name := regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*|test/cases/[a-z0-9-]+\\.txtar)`")
	found := 0
	for _, page := range pages(t) {
		for _, match := range name.FindAllStringSubmatch(strings.Join(page.Prose, "\n"), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, match[1])); err != nil && !strings.Contains(source, "\nfunc "+match[1]+"(") {
				t.Errorf("%s names %s, which does not exist", page.Path, match[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("found %d names", found)
	}
}

// TestEventsPage checks that docs/events.md describes the reason of each Event of the code, and that each reason on the page is in the code.
func TestEventsPage(t *testing.T) {
	source := sources(t, filepath.Join(root, "pkg"), ".go") + sources(t, filepath.Join(root, "cmd"), ".go")
	text, err := os.ReadFile(filepath.Join(root, "docs/events.md"))
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z`, ]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		for reason := range strings.SplitSeq(row[1], "`, `") {
			described[reason] = true
			if !strings.Contains(source, `"`+reason+`"`) {
				t.Errorf("docs/events.md describes %s, which is not in the code", reason)
			}
		}
	}
	reasons := regexp.MustCompile(`(?s)proxy\.Event\{[^}]*?Reason:\s*([\w.]+|"\w+")|event\.Reason\s*=\s*("\w+")`).FindAllStringSubmatch(source, -1)
	for _, match := range reasons {
		reason := match[1] + match[2]
		if constant, ok := strings.CutPrefix(reason, "plan."); ok {
			value := regexp.MustCompile(`\s` + constant + `\s+(?:\w+\s+)?= ("\w+")`).FindStringSubmatch(source)
			if value == nil {
				t.Fatalf("plan.%s is not a constant", constant)
			}
			reason = value[1]
		}
		if name, err := strconv.Unquote(reason); err == nil && !described[name] { // others are parameters
			t.Errorf("docs/events.md does not describe %s", name)
		}
	}
	if len(reasons) < 8 {
		t.Errorf("found %d Events", len(reasons))
	}
}

// sources returns the text of all files below dir whose names end so.
func sources(t *testing.T, dir, ending string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && name != dir && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin") {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ending) || strings.HasSuffix(name, "_test.go") != (ending == "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		all.Write(append(text, '\n'))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
