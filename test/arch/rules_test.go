package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tree is the syntax of a module and of the modules nested in it, and what is bad in it.
type tree struct {
	module string
	fset   *token.FileSet
	files  []*file
	found  []string
}

// file is a Go file that is not generated.
type file struct {
	name, dir string // relative to the root, with slashes
	test      bool
	syntax    *ast.File
}

// rules are applied to each file that is not generated.
var rules = []func(*tree, *file){(*tree).imports, (*tree).length, (*tree).interfaces, (*tree).modes, (*tree).kernelTests, (*tree).subtests}

// imports applies the table of imports.go.
func (t *tree) imports(f *file) {
	if rowOf(f.dir) == nil {
		t.bad(f.syntax.Package, "%s has no row in test/arch/imports.go: add one", f.dir)
		return
	}
	for _, spec := range f.syntax.Imports {
		if target, ours := strings.CutPrefix(importPath(spec), t.module+"/"); ours {
			if why := forbidden(f.dir, target, f.test); why != "" {
				t.bad(spec.Pos(), "%s", why)
			}
		}
	}
}

// length checks that a file has at most 500 lines, a test 1,000.
func (t *tree) length(f *file) {
	budget := 500
	if f.test {
		budget = 1000
	}
	if n := t.fset.File(f.syntax.Pos()).LineCount(); n > budget {
		t.bad(f.syntax.Package, "the file has %d lines, at most %d are allowed: split it by subject", n, budget)
	}
}

// interfaces finds methods of exported interfaces without a comment. One comment is enough for methods in consecutive lines, for which
// revive would want one each.
func (t *tree) interfaces(f *file) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() || f.test {
			return true
		}
		typ, ok := spec.Type.(*ast.InterfaceType)
		if !ok {
			return true
		}
		documented, last := false, 0
		for _, method := range typ.Methods.List {
			line := t.fset.Position(method.Pos()).Line
			documented = method.Doc != nil || method.Comment != nil || documented && line == last+1
			last = t.fset.Position(method.End()).Line
			if len(method.Names) > 0 && method.Names[0].IsExported() && !documented {
				t.bad(method.Pos(), "%s.%s has no comment", spec.Name.Name, method.Names[0].Name)
			}
		}
		return true
	})
}

// modeUsers are the places that may name a proxy mode; everything else must work with any backend.
var modeUsers = []string{
	"pkg/apis/config/...", "pkg/features/...", "pkg/kernel/...", "pkg/proxy/backend/*/...",
	"cmd/kube-proxy/app/backends.go", "cmd/kube-proxy/app/flags.go", "test/...", "build/...",
}

var (
	modeFolders  = []string{"pkg/proxy/backend/*/..."}
	modeConstant = regexp.MustCompile(`^ProxyMode[A-Z]`)
	// modeLiteral matches a name that is or contains a mode's, such as that of a metric. Prose, which has spaces, may mention modes.
	modeLiteral = regexp.MustCompile(`^[^ \n]*(iptables|nftables|ipvs)[^ \n]*$`)
)

// modes finds constants, imports and string literals that name a proxy mode outside of modeUsers.
func (t *tree) modes(f *file) {
	if f.test || matchAny(modeUsers, f.dir) || slices.Contains(modeUsers, f.name) {
		return
	}
	const remedy = "ask the backend through an interface of package backend, or add a field to its row in cmd/kube-proxy/app/backends.go"
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			if target, ours := strings.CutPrefix(importPath(n), t.module+"/"); ours && matchAny(modeFolders, target) {
				t.bad(n.Pos(), "%s is one mode's: %s", target, remedy)
			}
			return false
		case *ast.Ident:
			if modeConstant.MatchString(n.Name) {
				t.bad(n.Pos(), "%s: %s", n.Name, remedy)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && modeLiteral.MatchString(n.Value) {
				t.bad(n.Pos(), "%s: %s", n.Value, remedy)
			}
		}
		return true
	})
}

// kernelTests finds tests that use network namespaces and are not named TestKernel..., by which `make test` runs them as root and without
// the race detector.
func (t *tree) kernelTests(f *file) {
	if !f.test || !slices.ContainsFunc(f.syntax.Imports, func(spec *ast.ImportSpec) bool {
		target, ours := strings.CutPrefix(importPath(spec), t.module+"/")
		return ours && matchAny([]string{"test/netns/...", "pkg/proxy/backend/backendtest/..."}, target)
	}) {
		return
	}
	for _, decl := range f.syntax.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" && !strings.HasPrefix(fn.Name.Name, "TestKernel") {
			t.bad(fn.Pos(), "the file uses network namespaces: name it TestKernel..., or move it to a file that does not")
		}
	}
}

// subtests finds subtests that are started by code that runs in a host of test/netns (Host.Do): a subtest has a goroutine of its own, which
// is not on the thread that is in the host's network namespace, so it would write rules on the machine that runs the test.
func (t *tree) subtests(f *file) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !selects(call.Fun, "Do") {
			return true
		}
		for _, argument := range call.Args {
			inside, ok := argument.(*ast.FuncLit)
			if !ok || inside.Type.Results == nil { // sync.Once.Do runs functions without a result
				continue
			}
			ast.Inspect(inside, func(n ast.Node) bool {
				if sub, ok := n.(*ast.CallExpr); ok && selects(sub.Fun, "Run") && slices.ContainsFunc(sub.Args, isSubtest) {
					t.bad(sub.Pos(), "a subtest started in a host does not run in it: start it outside of Do, and call Do in the subtest")
				}
				return true
			})
		}
		return true
	})
}

// selects reports whether an expression selects a method or field of this name.
func selects(e ast.Expr, name string) bool {
	selector, ok := e.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == name
}

// isSubtest reports whether e is a function literal with one parameter of the type *testing.T or *testing.B.
func isSubtest(e ast.Expr) bool {
	f, ok := e.(*ast.FuncLit)
	if !ok || len(f.Type.Params.List) != 1 {
		return false
	}
	pointer, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	return ok && (selects(pointer.X, "T") || selects(pointer.X, "B"))
}

// importPath returns the path that spec imports, without its quotes, which the parser has checked.
func importPath(spec *ast.ImportSpec) string {
	s, _ := strconv.Unquote(spec.Path.Value)
	return s
}

func (t *tree) bad(pos token.Pos, format string, args ...any) {
	t.badAt(t.fset.Position(pos), format, args...)
}

// badAt adds a finding at a place whose file name is relative to the root.
func (t *tree) badAt(place token.Position, format string, args ...any) {
	t.found = append(t.found, fmt.Sprintf("%s:%d: %s", place.Filename, place.Line, fmt.Sprintf(format, args...)))
}

// badLines returns the places of src that have a comment "bad:".
func badLines(name string, src []byte) (places []string) {
	for i, line := range bytes.Split(src, []byte("\n")) {
		if bytes.Contains(line, []byte("bad:")) {
			places = append(places, fmt.Sprintf("%s:%d", path.Clean(name), i+1))
		}
	}
	return places
}
