package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// wiring lists the packages that parse a command line and connect other packages, and compute nothing themselves.
var wiring = []string{"cmd/*/app/..."}

// computing lists the packages that wiring does not need: those for addresses, numbers, order, shared memory and system
// calls, the objects of the API, and clients that follow them.
var computing = []string{
	"net/netip", "math", "sort", "container", "hash", "sync/atomic", "golang.org/x/sys", "github.com/fsnotify/fsnotify",
	"k8s.io/api", "k8s.io/client-go/informers", "k8s.io/client-go/kubernetes", "k8s.io/client-go/listers",
	"k8s.io/client-go/tools/cache", "k8s.io/client-go/util",
}

// maxBranches is the most branches that a function of the wiring may have: conditions, cases and loops, and each && and ||.
// A loop within a loop is an algorithm, however short.
const maxBranches = 10

// findComputations finds imports, branches and nested loops in the wiring that belong to a package below pkg. Tests are not
// checked.
func findComputations(t *Tree) ([]Violation, error) {
	var found []Violation
	const remedy = "move what is computed to a package below pkg, with its test"
	for p, f := range t.files {
		if f.Test || !matchAny(wiring, p.Dir) {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			imported := importPath(spec)
			if slices.ContainsFunc(computing, func(bad string) bool { return imported == bad || strings.HasPrefix(imported, bad+"/") }) {
				found = append(found, t.at(spec.Pos(), fmt.Sprintf("%s only wires and parses, and imports %s", p.Dir, imported), remedy))
			}
		}
		for _, decl := range f.Syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := branches(fn.Body); n > maxBranches {
				found = append(found, t.at(fn.Pos(), fmt.Sprintf("%s only wires and parses, and %s has %d branches, at most %d are allowed",
					p.Dir, fn.Name.Name, n, maxBranches), remedy))
			}
			for _, loop := range nestedLoops(fn.Body) {
				found = append(found, t.at(loop.Pos(), fmt.Sprintf("%s only wires and parses, and %s has a loop within a loop", p.Dir, fn.Name.Name), remedy))
			}
		}
	}
	return found, nil
}

// branches counts the branches of a function.
func branches(body ast.Node) int {
	count := 0
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.CommClause:
			count++
		case *ast.CaseClause:
			if n.List != nil { // not default
				count++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				count++
			}
		}
		return true
	})
	return count
}

// nestedLoops returns the loops within other loops of a function.
func nestedLoops(body ast.Node) []ast.Node {
	var nested []ast.Node
	ast.Inspect(body, func(n ast.Node) bool {
		outer := loopBody(n)
		if outer == nil {
			return true
		}
		ast.Inspect(outer, func(n ast.Node) bool {
			if loopBody(n) != nil {
				nested = append(nested, n)
			}
			return true
		})
		return false
	})
	return nested
}

// loopBody returns the body of a loop, and nil for all other nodes.
func loopBody(n ast.Node) *ast.BlockStmt {
	switch n := n.(type) {
	case *ast.ForStmt:
		return n.Body
	case *ast.RangeStmt:
		return n.Body
	}
	return nil
}
