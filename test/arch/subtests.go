package arch

import (
	"go/ast"
	"slices"
)

// findSubtestsInside finds subtests that are started by code that runs in a host of test/netns (Host.Do): a subtest has a
// goroutine of its own, which is not on the thread that is in the host's network namespace, so it would send packets and
// write rules on the machine that runs the test.
func findSubtestsInside(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, f := range t.files {
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
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
						found = append(found, t.at(sub.Pos(), "a subtest is started in a host, and does not run in it",
							"start it outside of Do, and call Do in the subtest"))
					}
					return true
				})
			}
			return true
		})
	}
	return found, nil
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
