package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// typed applies the rules that need types: those of package variables and of circles of files. Modules nested below test and build are left
// out: none of their code is part of a program.
func (t *tree) typed(tb testing.TB, dir string) {
	tb.Helper()
	// Without cgo, like the program: this uses the same build cache and needs no C compiler.
	config := &packages.Config{Mode: packages.LoadSyntax | packages.NeedForTest, Dir: dir, Tests: true, Fset: t.fset, Env: append(os.Environ(), "CGO_ENABLED=0")}
	all, err := packages.Load(config, "./...")
	if err != nil {
		tb.Fatal(err)
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		tb.Fatal(err)
	}
	seen := map[string]bool{}
	report := func(pos token.Pos, format string, args ...any) {
		place := t.fset.Position(pos)
		place.Filename = strings.TrimPrefix(place.Filename, absolute+"/")
		if text := fmt.Sprint(place, format, args); !seen[text] { // a package is there again with its tests
			seen[text] = true
			t.badAt(place, format, args...)
		}
	}
	for _, p := range all {
		if len(p.Errors) > 0 && len(t.found) == 0 { // imports that are found already may form a cycle
			tb.Fatal(p.Errors)
		}
		dir := strings.TrimPrefix(p.PkgPath, t.module+"/")
		if p.ForTest == "" && matchAny(layered, dir) {
			circles(p, report)
		}
		for _, f := range p.Syntax {
			if strings.HasPrefix(t.fset.Position(f.Package).Filename, absolute) && !ast.IsGenerated(f) {
				variables(t.module, p.TypesInfo, f, report)
			}
		}
	}
}

// layered are the packages whose files must not form a circle: each file can be read knowing only those that it uses.
var layered = []string{"pkg/proxy/backend/*"}

type reporter func(pos token.Pos, format string, args ...any)

// circles finds files of one package that use each other, directly or through others. A file uses another if it names a function, method,
// type, variable or constant that the other declares; fields belong to their type.
func circles(p *packages.Package, report reporter) {
	file := func(pos token.Pos) string { return path.Base(p.Fset.Position(pos).Filename) }
	type use struct {
		pos  token.Pos
		name string
	}
	uses := map[string]map[string]use{} // the first use, by file and used file
	for id, obj := range p.TypesInfo.Uses {
		if fn, ok := obj.(*types.Func); ok {
			obj = fn.Origin() // of a generic type's method
		}
		isMethod := false
		if fn, ok := obj.(*types.Func); ok {
			isMethod = fn.Signature().Recv() != nil && !types.IsInterface(fn.Signature().Recv().Type())
		}
		if obj.Pkg() != p.Types || obj.Parent() != p.Types.Scope() && !isMethod {
			continue
		}
		from, to := file(id.Pos()), file(obj.Pos())
		if uses[from] == nil {
			uses[from] = map[string]use{}
		}
		if u, ok := uses[from][to]; from != to && (!ok || id.Pos() < u.pos) {
			uses[from][to] = use{id.Pos(), id.Name}
		}
	}
	for from, used := range uses {
		for to, u := range used {
			if reaches(uses, to, from, map[string]bool{}) {
				report(u.pos, "%s uses %s of %s, which uses %s: move what they share to a file below both", from, u.name, to, from)
			}
		}
	}
}

// reaches reports whether there is a way from a file to another.
func reaches[T any](uses map[string]map[string]T, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	for next := range uses[from] {
		if !seen[next] && reaches(uses, next, to, seen) {
			return true
		}
	}
	return false
}
