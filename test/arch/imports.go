package arch

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
)

// row says what one part of the tree may import of this module. A pattern is a folder, in which * stands for one name and
// a final /... for everything below; a package may always import what its own match of the pattern covers.
type row struct {
	packages string
	imports  []string
}

// rows is the table of who may import whom. The first row that matches a package holds; a package without a row is an
// error, so that a new folder has to say where it stands. Who reads the plan may import cluster too, because a plan is
// made of its names, families and protocols.
var rows = []row{
	// The one place that knows everything, and what only it may read. audit judges objects, not plans.
	{"cmd/...", []string{"pkg/..."}},
	{"pkg/apis/config/...", []string{"pkg/yamldoc"}},
	{"pkg/features/...", nil},
	{"pkg/audit/...", []string{"pkg/yamldoc"}},

	// What reads files: documents and the lines of their fields, whatever is in them.
	{"pkg/yamldoc", nil},

	// The ends: doors know nothing of ours, sources fill a snapshot.
	{"pkg/kernel/internal/...", nil},
	{"pkg/kernel/*/...", []string{"pkg/kernel/internal/..."}},
	{"pkg/proxy/source", []string{"pkg/proxy/cluster"}},
	{"pkg/proxy/source/manifests/...", []string{"pkg/proxy/cluster", "pkg/proxy/source", "pkg/yamldoc"}},
	{"pkg/proxy/source/*/...", []string{"pkg/proxy/cluster", "pkg/proxy/source"}},

	// The pipeline, each stage on the one before it.
	{"pkg/proxy/cluster/...", nil},
	{"pkg/proxy/plan/...", []string{"pkg/proxy/cluster"}},
	{"pkg/proxy/backend", []string{"pkg/proxy/cluster", "pkg/proxy/plan"}},
	{"pkg/proxy/backend/nftables/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/kernel/nft/..."}},
	{"pkg/proxy/backend/iptables/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/kernel/ipt/..."}},
	{"pkg/proxy/backend/backendtest/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "test/..."}},

	// What modes that are no more have left behind.
	{"pkg/proxy/leftovers/...", []string{"pkg/kernel/ipvs/..."}},

	// What the observers that speak HTTP have in common.
	{"pkg/proxy/serve/...", nil},

	// The observers: what the loop tells them, which is the plan and how writing it went, and at most a door of their own.
	{"pkg/proxy/health/...", observed},
	{"pkg/proxy/conntrack/...", append([]string{"pkg/kernel/conntrack/..."}, observed...)},
	{"pkg/proxy/localhost/...", observed},
	{"pkg/proxy/metrics/...", observed},
	{"pkg/proxy/node/...", observed},
	{"pkg/proxy/status/...", observed},
	{"pkg/proxy/externalips/...", observed},
	{"pkg/proxy/contest/...", observed},
	{"pkg/proxy/refusals/...", observed},
	{"pkg/proxy/rivals/...", observed},

	// The loop, which names no backend, no door, no observer, and of the sources just what they have in common.
	{"pkg/proxy", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/source"}},

	// What is not part of the program.
	{"test/arch/...", nil},
	{"test/netns/...", nil},
	{"test/...", []string{"pkg/..."}},
	{"build/...", []string{"pkg/apis/..."}},
}

// observed is what an observer may import: the loop's Observer, what it is told of, and HTTP.
var observed = []string{"pkg/proxy", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/serve"}

// testImports is what the _test.go files of any package may import beside what its row says: they build the input of the
// stage that they test, and use the tools below test/.
var testImports = []string{"test/...", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend/backendtest/...", "pkg/proxy/source/manifests"}

// library says who may import some packages that are not ours. A user is a pattern as in [row] or, if it ends in .go, a
// pattern of file names.
type library struct {
	paths  []string
	users  []string
	tests  bool // whether every _test.go file may, too
	remedy string
}

// libraries is the table of restricted libraries; every other library is free for all.
var libraries = []library{
	{
		paths:  []string{"k8s.io/client-go"},
		users:  []string{"cmd/...", "pkg/proxy/source/apiserver/...", "pkg/audit/listing", "test/..."},
		remedy: "only the API server's source, the audit's listing and cmd talk to it; take plain values instead",
	},
	{
		paths: []string{"k8s.io/api"},
		users: []string{
			"pkg/proxy/source/...", "pkg/proxy/cluster/builder*.go", "pkg/proxy/cluster/convert*.go",
			// It looks at the very fields that the pipeline must not read, so that no snapshot has them.
			"pkg/audit/...",
			"pkg/proxy/backend/backendtest/...", "test/...",
		},
		tests:  true,
		remedy: "objects of the API end at cluster's builder*.go and convert*.go; take the values of cluster or plan instead",
	},
	{
		paths:  []string{"k8s.io/kube-proxy", "k8s.io/component-base/config", "k8s.io/component-base/featuregate"},
		users:  []string{"cmd/...", "pkg/apis/config/...", "pkg/features/..."},
		remedy: "configuration and gates are read in cmd; below it, take a small options struct",
	},
	{
		paths: []string{
			"github.com/coreos/go-iptables", "github.com/google/nftables", "github.com/mdlayher/netlink",
			"github.com/vishvananda/netlink", "github.com/vishvananda/netns",
		},
		users:  []string{"pkg/kernel/...", "test/..."},
		remedy: "the kernel is reached through a door in pkg/kernel",
	},
	{
		paths:  []string{"sigs.k8s.io/knftables"},
		users:  []string{"pkg/kernel/nft/...", "pkg/proxy/backend/nftables/...", "test/..."},
		remedy: "nftables is spoken by the nftables backend and its door",
	},
	{
		paths:  []string{"os/exec"},
		users:  []string{"cmd/...", "pkg/kernel/...", "test/...", "build/..."},
		tests:  true,
		remedy: "programs are run by the doors in pkg/kernel",
	},
}

// findImports holds every import of our own packages against rows.
func findImports(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, p := range t.Packages {
		i := slices.IndexFunc(rows, func(r row) bool { _, ok := match(r.packages, p.Dir); return ok })
		if i < 0 {
			found = append(found, t.at(p.Files[0].Syntax.Package, p.Dir+" has no row in the import table",
				"give it one in test/arch/imports.go"))
			continue
		}
		for _, f := range p.Files {
			for _, spec := range f.Syntax.Imports {
				dir, ours := t.ownFolder(importPath(spec))
				if !ours || mayImport(rows[i], p.Dir, f.Test, dir) {
					continue
				}
				found = append(found, t.at(spec.Pos(), fmt.Sprintf("%s may not import %s", who(p, f), dir), allowance(rows[i], f.Test)))
			}
		}
	}
	return found, nil
}

// mayImport reports whether a file of the package in dir, which r holds for, may import our package in target.
func mayImport(r row, dir string, test bool, target string) bool {
	own, _ := match(r.packages, dir)
	if target == own || strings.HasSuffix(r.packages, "/...") && strings.HasPrefix(target, own+"/") || target == dir {
		return true
	}
	return matchAny(r.imports, target) || test && matchAny(testImports, target)
}

// allowance tells what would be allowed instead.
func allowance(r row, test bool) string {
	may := slices.Clone(r.imports)
	if test {
		may = append(may, testImports...)
	}
	if len(may) == 0 {
		return r.packages + " imports nothing of ours: pass a value or a function in from above"
	}
	return r.packages + " may import " + strings.Join(may, ", ") + ": move the code, or pass a value or a function in from above"
}

// who names the importer in a message.
func who(p *Package, f *File) string {
	if f.Test {
		return "a test of " + p.Dir
	}
	return p.Dir
}

// findLibraries holds every other import against libraries.
func findLibraries(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, spec := range f.Syntax.Imports {
				if lib, ok := restricted(importPath(spec)); ok && !lib.mayUse(p, f) {
					found = append(found, t.at(spec.Pos(), fmt.Sprintf("%s may not import %s", who(p, f), importPath(spec)), lib.remedy))
				}
			}
		}
	}
	return found, nil
}

// restricted returns the row of libraries that an import path falls under.
func restricted(imported string) (library, bool) {
	for _, lib := range libraries {
		if slices.ContainsFunc(lib.paths, func(p string) bool { return imported == p || strings.HasPrefix(imported, p+"/") }) {
			return lib, true
		}
	}
	return library{}, false
}

// mayUse reports whether f, a file of p, may import the library.
func (lib library) mayUse(p *Package, f *File) bool {
	return lib.tests && f.Test || slices.ContainsFunc(lib.users, func(user string) bool {
		if strings.HasSuffix(user, ".go") {
			ok, err := path.Match(user, f.Name)
			return err == nil && ok
		}
		_, ok := match(user, p.Dir)
		return ok
	})
}

// importPath returns the path that spec imports, without its quotes.
func importPath(spec *ast.ImportSpec) string {
	s, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser lets no such literal through
	}
	return s
}

// ownFolder returns the folder of an import path of ours, whether or not it exists yet.
func (t *Tree) ownFolder(imported string) (string, bool) {
	if p := t.byPath[imported]; p != nil {
		return p.Dir, true
	}
	if imported == t.Module {
		return ".", true
	}
	return strings.CutPrefix(imported, t.Module+"/")
}

// match holds a folder against a pattern and returns the part of the folder that the pattern names: all but what a
// final /... stands for.
func match(pattern, dir string) (own string, ok bool) {
	pattern, below := strings.CutSuffix(pattern, "/...")
	want, have := strings.Split(pattern, "/"), strings.Split(dir, "/")
	if len(have) < len(want) || len(have) > len(want) && !below {
		return "", false
	}
	for i := range want {
		if want[i] != "*" && want[i] != have[i] {
			return "", false
		}
	}
	return strings.Join(have[:len(want)], "/"), true
}

// matchAny reports whether dir matches one of the patterns.
func matchAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { _, ok := match(pattern, dir); return ok })
}
