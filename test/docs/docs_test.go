package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
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

// TestCommandsOfPages checks that every command of every page is run by a test, or listed with the reason why not.
func TestCommandsOfPages(t *testing.T) {
	tests := declaredTests(t)
	unused := map[row]bool{}
	for _, r := range commandTable() {
		unused[r] = true
		if (r.test == "") == (r.why == "") {
			t.Errorf("%s: the row %q must have either a test or a reason", r.page, r.command)
		}
		if r.test != "" && !tests[r.test] {
			t.Errorf("%s: there is no %s", r.page, r.test)
		}
	}
	for _, page := range pages(t) {
		for _, command := range page.Commands() {
			i := slices.IndexFunc(commandTable(), func(r row) bool { return r.page == page.Path && strings.HasPrefix(command, r.command) })
			if i < 0 {
				t.Errorf("%s: no row of commandTable matches %q: name the test that runs it, or why none does", page.Path, command)
				continue
			}
			delete(unused, commandTable()[i])
		}
	}
	for r := range unused {
		t.Errorf("%s: no command begins with %q, or an earlier row matches all of them", r.page, r.command)
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

// declaredTests returns the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	goFiles(t, root, func(file *ast.File) {
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names[fn.Name.Name] = true
			}
		}
	}, true)
	return names
}

// goFiles calls use with each Go file below a folder: with the tests, or with all others.
func goFiles(t *testing.T, dir string, use func(*ast.File), tests bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != dir && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") != tests:
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err == nil {
			use(file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEventsPage checks that docs/events.md describes the reasons of all Events that the code publishes, and no other.
func TestEventsPage(t *testing.T) {
	published, constants := map[string]bool{}, map[string]string{}
	goFiles(t, filepath.Join(root, "pkg/proxy/plan"), func(file *ast.File) { addConstants(file, constants) }, false)
	for _, dir := range []string{"cmd", "pkg/proxy"} {
		// parameters maps the name of a function to the index of its parameter that an Event's Reason comes from.
		parameters, calls := map[string]int{}, []*ast.CallExpr{}
		goFiles(t, filepath.Join(root, dir), func(file *ast.File) {
			for _, decl := range file.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok {
					reasonsOf(t, fn, published, constants, parameters)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					calls = append(calls, call)
				}
				return true
			})
		}, false)
		for _, call := range calls {
			if fn, ok := call.Fun.(*ast.SelectorExpr); ok {
				if index, ok := parameters[fn.Sel.Name]; ok && index < len(call.Args) {
					if reason, ok := literal(call.Args[index]); ok {
						published[reason] = true
					}
				}
			}
		}
	}
	described := map[string]bool{}
	text, err := os.ReadFile(filepath.Join(root, "docs/events.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			reason, _, _ := strings.Cut(rest, "`")
			described[reason] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(published)), slices.Sorted(maps.Keys(described))); diff != "" || len(published) < 8 {
		t.Errorf("docs/events.md differs from the Events of the code (-code +page):\n%s", diff)
	}
}

// reasonsOf adds the reasons of a function's Events: literals in a proxy.Event and assignments to the Reason of one. A
// parameter is added to parameters, for the calls of the function.
func reasonsOf(t *testing.T, fn *ast.FuncDecl, published map[string]bool, constants map[string]string, parameters map[string]int) {
	t.Helper()
	publishes := false
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			typ, ok := n.Type.(*ast.SelectorExpr)
			if pkg, isName := exprName(typ); !ok || !isName || pkg != "proxy" || typ.Sel.Name != "Event" {
				return true
			}
			publishes = true
			for _, element := range n.Elts {
				field, ok := element.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				if name, ok := field.Key.(*ast.Ident); !ok || name.Name != "Reason" {
					continue
				}
				if reason, ok := literal(field.Value); ok {
					published[reason] = true
				} else if constant, ok := field.Value.(*ast.SelectorExpr); ok && constants[constant.Sel.Name] != "" {
					published[constants[constant.Sel.Name]] = true
				} else if index, ok := parameter(fn, field.Value); ok {
					parameters[fn.Name.Name] = index
				} else {
					t.Errorf("%s: cannot determine the Reason of an Event: use a constant, a literal or a parameter", fn.Name.Name)
				}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				field, ok := left.(*ast.SelectorExpr)
				if !ok || !publishes || field.Sel.Name != "Reason" || len(n.Rhs) != len(n.Lhs) {
					continue
				}
				if reason, ok := literal(n.Rhs[i]); ok {
					published[reason] = true
				} else {
					t.Errorf("%s: cannot determine the Reason of an Event: use a constant, a literal or a parameter", fn.Name.Name)
				}
			}
		}
		return true
	})
}

// addConstants adds a file's constants whose values are string literals.
func addConstants(file *ast.File, constants map[string]string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
			for i, name := range spec.Names {
				if text, ok := literal(spec.Values[i]); ok {
					constants[name.Name] = text
				}
			}
		}
		return true
	})
}

// exprName returns the name before the dot.
func exprName(typ *ast.SelectorExpr) (string, bool) {
	if typ == nil {
		return "", false
	}
	name, ok := typ.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	return name.Name, true
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// parameter returns the index of the parameter of fn that e names.
func parameter(fn *ast.FuncDecl, e ast.Expr) (index int, ok bool) {
	name, ok := e.(*ast.Ident)
	if !ok {
		return 0, false
	}
	for _, field := range fn.Type.Params.List {
		for _, param := range field.Names {
			if param.Name == name.Name {
				return index, true
			}
			index++
		}
	}
	return 0, false
}
