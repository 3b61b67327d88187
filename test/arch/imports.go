package arch

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
)

// row lists the packages of this module that one part of the tree may import. A pattern is a folder, in which * matches
// one name and a final /... everything below; a package may always import the packages below its own match.
type row struct {
	packages string
	imports  []string
}

// rows is the import table. The first row that matches a package applies; a package without a row is an error, so that
// every new folder gets a row. Packages that read the plan may import cluster too, because a plan uses its names, families
// and protocols.
var rows = []row{
	// The wiring, which may import everything, and the packages that only it may import.
	{"cmd/...", []string{"pkg/..."}},
	{"pkg/apis/config/...", []string{"pkg/yamldoc", "pkg/logonce", "pkg/userfile"}},
	{"pkg/apis/status/...", nil},
	{"pkg/features/...", nil},
	{"pkg/check", []string{"pkg/apis/status/...", "pkg/apiclient", "pkg/kernel/...", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend"}},
	{"pkg/findings", []string{"pkg/apiclient", "pkg/apis/status/...", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/source", "pkg/proxy/source/manifests", "pkg/terminal"}},

	// The reader of YAML documents and the lines of their fields, independent of their content.
	{"pkg/yamldoc", nil},

	// The reader of files that users name.
	{"pkg/userfile", nil},

	// Clients of an API server.
	{"pkg/apiclient", nil},

	// When to log a condition that lasts: everything that runs for long may use it.
	{"pkg/logonce", nil},

	// The two ends: doors import no other package of ours except the client of nf_tables, sources fill a snapshot.
	{"pkg/kernel/internal/...", nil},
	{"pkg/kernel/nf", []string{"pkg/kernel/cputime", "pkg/kernel/internal/netlink"}},
	{"pkg/kernel/*/...", []string{"pkg/kernel/internal/...", "pkg/kernel/nf/..."}},
	{"pkg/proxy/source", []string{"pkg/proxy/cluster", "pkg/logonce"}},
	{"pkg/proxy/source/manifests/...", []string{"pkg/proxy/cluster", "pkg/proxy/source", "pkg/yamldoc", "pkg/logonce", "pkg/userfile"}},
	{"pkg/proxy/source/apiserver/...", []string{"pkg/apiclient", "pkg/proxy", "pkg/proxy/cluster", "pkg/proxy/source", "pkg/logonce"}},
	{"pkg/proxy/source/*/...", []string{"pkg/proxy/cluster", "pkg/proxy/source", "pkg/logonce"}},

	// The pipeline: each stage imports the previous one.
	{"pkg/proxy/cluster/...", nil},
	{"pkg/proxy/plan/...", []string{"pkg/proxy/cluster"}},
	{"pkg/proxy/backend", []string{"pkg/proxy/cluster", "pkg/proxy/plan"}},
	{"pkg/proxy/quarantine", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend"}},
	{"pkg/proxy/backend/keeper", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/kernel/nf", "pkg/kernel/cputime"}},
	{"pkg/proxy/backend/nftables/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/backend/keeper", "pkg/kernel/nft/...", "pkg/kernel/nf"}},
	{"pkg/proxy/backend/iptables/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/backend/keeper", "pkg/kernel/ipt/...", "pkg/kernel/nf", "pkg/kernel/cputime"}},
	{"pkg/proxy/backend/backendtest/...", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/source/manifests", "test/..."}},

	// Removal of what earlier modes left behind.
	{"pkg/proxy/backend/ipvs", []string{"pkg/proxy/cluster", "pkg/proxy/backend", "pkg/kernel/ipvs/..."}},

	// Kernel settings and those of this process.
	{"pkg/proxy/tuning/...", []string{"pkg/kernel/sysctl/..."}},

	// The common part of observers that serve HTTP.
	{"pkg/proxy/serve/...", []string{"pkg/apis/status/...", "pkg/logonce"}},

	// The observers: they import the types that the loop passes to them, and at most their own door.
	{"pkg/proxy/health/...", observed},
	{"pkg/proxy/conntrack/...", append([]string{"pkg/kernel/conntrack/..."}, observed...)},
	{"pkg/proxy/localhost/...", observed},
	{"pkg/proxy/metrics/...", observed},
	{"pkg/proxy/node/...", observed},
	{"pkg/proxy/report/...", observed},
	{"pkg/proxy/takeover/...", append([]string{"pkg/kernel/netlock"}, observed...)},
	{"pkg/proxy/view/...", append([]string{"pkg/apis/status/...", "pkg/status"}, observed...)},

	// The status page of a running proxy.
	{"pkg/proxy/page/...", append([]string{"pkg/apis/status/...", "pkg/status", "pkg/proxy/view"}, observed...)},

	// The loop: it imports no backend, door or observer, and only the common part of the sources.
	{"pkg/proxy", []string{"pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/source", "pkg/logonce"}},

	// What a proxy does with a plan, as objects and in words: the server of a running proxy and the commands import it, and neither
	// imports the other.
	{"pkg/status", []string{"pkg/apis/status/...", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend"}},

	// The readers of a running proxy, or of objects without one, for the commands.
	{"pkg/inspect/pods", []string{"pkg/apiclient"}},
	{"pkg/inspect/packets", []string{"pkg/apis/status/...", "pkg/inspect", "pkg/kernel/nft/trace/...", "pkg/status"}},
	{"pkg/inspect/...", []string{"pkg/apis/status/...", "pkg/status", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/source", "pkg/terminal"}},

	// How texts are shown on a terminal.
	{"pkg/terminal", nil},

	// Not part of the program.
	{"test/arch/...", nil},
	{"test/netns/...", nil},
	{"test/...", []string{"pkg/..."}},
	{"build/...", []string{"pkg/apis/..."}},
}

// observed lists what an observer may import: the loop's Observer, the types of its arguments, and the helpers.
var observed = []string{"pkg/proxy", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend", "pkg/proxy/serve", "pkg/logonce"}

// testImports lists what the _test.go files of any package may import in addition to its row: they build the input of the
// tested stage, and use the tools below test/.
var testImports = []string{"test/...", "pkg/proxy/cluster", "pkg/proxy/plan", "pkg/proxy/backend/backendtest/...", "pkg/proxy/source/manifests"}

// library restricts the import of packages of other modules. A user is a pattern as in [row] or, if it ends in .go, a
// pattern of file names.
type library struct {
	paths  []string
	users  []string
	tests  bool // whether every _test.go file may import them too
	remedy string
}

// libraries is the table of restricted libraries; all other libraries may be imported anywhere.
var libraries = []library{
	{
		// They import every kind of every API group: the program was 45 % larger with them, and each process 8 MB
		// (docs/decisions/0026).
		paths:  heavy,
		users:  []string{"test/..."},
		remedy: "use pkg/apiclient, with only the kinds that you need",
	},
	{
		paths:  []string{"k8s.io/client-go"},
		users:  []string{"cmd/...", "pkg/apiclient", "pkg/proxy/source/apiserver/...", "pkg/findings", "pkg/inspect/pods", "pkg/check", "test/..."},
		remedy: "only cmd, pkg/apiclient, the API server source, findings, inspect's pods and checks may use client-go; use plain values instead",
	},
	{
		paths: []string{"k8s.io/api"},
		users: []string{
			"pkg/proxy/source/...", "pkg/proxy/cluster/builder*.go", "pkg/proxy/cluster/convert*.go",
			// Findings read fields that the pipeline must not read, so no snapshot contains them.
			"pkg/findings", "pkg/check", "pkg/inspect/pods",
			"pkg/proxy/backend/backendtest/...", "test/...",
		},
		tests:  true,
		remedy: "only sources and cluster's builder*.go and convert*.go may use API objects; use the types of cluster or plan instead",
	},
	{
		paths:  []string{"k8s.io/kube-proxy", "k8s.io/component-base/config", "k8s.io/component-base/featuregate"},
		users:  []string{"cmd/...", "pkg/apis/config/...", "pkg/features/..."},
		remedy: "only cmd reads configuration and feature gates; accept a small options struct instead",
	},
	{
		paths: []string{
			"github.com/coreos/go-iptables", "github.com/google/nftables", "github.com/mdlayher/netlink",
			"github.com/vishvananda/netlink", "github.com/vishvananda/netns",
		},
		users:  []string{"pkg/kernel/...", "test/..."},
		remedy: "use a door in pkg/kernel to access the kernel",
	},
	{
		paths:  []string{"sigs.k8s.io/knftables"},
		users:  []string{"pkg/kernel/nft/...", "pkg/proxy/backend/nftables/...", "test/..."},
		remedy: "only the nftables backend and its door may use knftables",
	},
	{
		paths:  []string{"os/exec"},
		users:  []string{"cmd/...", "pkg/kernel/...", "test/...", "build/..."},
		tests:  true,
		remedy: "use a door in pkg/kernel to run programs",
	},
	{
		// A template may call any exported method by its name, so the linker would keep all of them: the program was 20 %
		// larger with one (31.6 MB), and each process 2.5 MB. The parser alone is small.
		paths:  []string{"html/template", "text/template"},
		users:  []string{"pkg/proxy/page/template.go"},
		tests:  true,
		remedy: "write texts with fmt, and HTML as pkg/proxy/page does",
	},
}

// heavy are the packages that import every kind of every API group.
var heavy = []string{
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/discovery", "k8s.io/client-go/informers", "k8s.io/client-go/listers",
	"k8s.io/client-go/tools/events", "k8s.io/client-go/tools/record", "k8s.io/client-go/tools/leaderelection",
	"k8s.io/component-base/metrics/prometheus/clientgo",
}

// findImports checks every import of our own packages against rows.
func findImports(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, p := range t.Packages {
		i := slices.IndexFunc(rows, func(r row) bool { _, ok := match(r.packages, p.Dir); return ok })
		if i < 0 {
			found = append(found, t.at(p.Files[0].Syntax.Package, p.Dir+" has no row in the import table",
				"add a row in test/arch/imports.go"))
			continue
		}
		for _, f := range p.Files {
			for _, spec := range f.Syntax.Imports {
				dir, ours := t.ownFolder(importPath(spec))
				if ours && !f.Test && isForTests(dir) && !isForTests(p.Dir) {
					found = append(found, t.at(spec.Pos(), fmt.Sprintf("%s may not import %s", who(p, f), dir),
						"it is for tests: only they, and packages that are for tests too, may import it"))
					continue
				}
				if !ours || mayImport(rows[i], p.Dir, f.Test, dir) {
					continue
				}
				found = append(found, t.at(spec.Pos(), fmt.Sprintf("%s may not import %s", who(p, f), dir), allowance(rows[i], f.Test)))
			}
		}
	}
	return found, nil
}

// mayImport reports whether a file of the package in dir, to which r applies, may import our package in target.
func mayImport(r row, dir string, test bool, target string) bool {
	own, _ := match(r.packages, dir)
	if target == own || strings.HasSuffix(r.packages, "/...") && strings.HasPrefix(target, own+"/") || target == dir {
		return true
	}
	return matchAny(r.imports, target) || test && matchAny(testImports, target)
}

// isForTests reports whether a package is for tests only, and so never part of the program: a fake or a suite, which has the name of
// its folder's package with test behind it, or one below test/.
func isForTests(dir string) bool {
	return path.Base(dir) == path.Base(path.Dir(dir))+"test" || strings.HasPrefix(dir, "test/")
}

// allowance describes the imports that are allowed instead.
func allowance(r row, test bool) string {
	may := slices.Clone(r.imports)
	if test {
		may = append(may, testImports...)
	}
	if len(may) == 0 {
		return r.packages + " may import no other package of this module: let the caller pass a value or a function"
	}
	return r.packages + " may import " + strings.Join(may, ", ") + ": move the code, or let the caller pass a value or a function"
}

// who describes the importer in a message.
func who(p *Package, f *File) string {
	if f.Test {
		return "a test of " + p.Dir
	}
	return p.Dir
}

// findLibraries checks all other imports against libraries.
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
		return spec.Path.Value // not reached: the parser rejects such literals
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

// match matches a folder against a pattern and returns the part of the folder that the pattern matches without a final
// /... .
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
