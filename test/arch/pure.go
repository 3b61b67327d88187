package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// pure lists the packages whose results depend only on their input.
var pure = []string{"pkg/proxy/cluster/...", "pkg/proxy/plan/..."}

// impure lists the packages that a pure package may not import: logs, the system, the network and random numbers.
var impure = []string{"k8s.io/klog", "log", "os", "math/rand", "crypto/rand", "net/http", "syscall", "golang.org/x/sys"}

// clock lists the functions of package time that read or follow the clock.
var clock = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer"}

// findImpurities finds imports and uses of the clock that make a pure package depend on more than its input. Tests of
// these packages are not checked.
func findImpurities(t *Tree) ([]Violation, error) {
	var found []Violation
	for p, f := range t.files {
		if f.Test || !matchAny(pure, p.Dir) {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			imported := importPath(spec)
			if slices.ContainsFunc(impure, func(bad string) bool { return imported == bad || strings.HasPrefix(imported, bad+"/") }) {
				found = append(found, t.at(spec.Pos(), fmt.Sprintf("%s is pure and imports %s", p.Dir, imported),
					"accept arguments and return results instead"))
			}
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if name, ok := timeFunction(n); ok && slices.Contains(clock, name) {
				found = append(found, t.at(n.Pos(), fmt.Sprintf("%s is pure and uses time.%s", p.Dir, name),
					"accept the time as an argument"))
			}
			return true
		})
	}
	return found, nil
}

// timeFunction returns the name of what n selects from package time.
func timeFunction(n ast.Node) (string, bool) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return sel.Sel.Name, ok && pkg.Name == "time"
}
