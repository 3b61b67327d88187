package arch

import (
	"fmt"
	"go/ast"
)

// Budgets are size limits. They do not apply to generated files.
type Budgets struct {
	// FunctionLines counts from the line of func to the line of the closing brace.
	FunctionLines int
	// FileLines applies to files of the program, TestFileLines to files named _test.go.
	FileLines, TestFileLines int
	// Parameters counts positional parameters, without the receiver.
	Parameters int
}

// House returns the budgets of this repository.
func House() Budgets {
	return Budgets{FunctionLines: 80, FileLines: 500, TestFileLines: 1000, Parameters: 5}
}

// findLongFunctions finds declared functions with too many lines.
func (b Budgets) findLongFunctions(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, f := range t.files {
		for _, decl := range f.Syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
			if lines > b.FunctionLines {
				found = append(found, t.at(fn.Pos(), fmt.Sprintf("%s has %d lines, the budget is %d", fn.Name.Name, lines, b.FunctionLines),
					"split it into smaller functions"))
			}
		}
	}
	return found, nil
}

// findLongFiles finds files with too many lines.
func (b Budgets) findLongFiles(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, f := range t.files {
		budget := b.FileLines
		if f.Test {
			budget = b.TestFileLines
		}
		if f.Lines > budget {
			found = append(found, t.at(f.Syntax.Package, fmt.Sprintf("the file has %d lines, the budget is %d", f.Lines, budget),
				"split it by subject"))
		}
	}
	return found, nil
}

// findLongParameterLists finds functions, interface methods and function types with too many parameters. Function
// literals are ignored: their signature is determined by the caller.
func (b Budgets) findLongParameterLists(t *Tree) ([]Violation, error) {
	var found []Violation
	check := func(name *ast.Ident, typ *ast.FuncType) {
		if n := typ.Params.NumFields(); n > b.Parameters {
			found = append(found, t.at(name.Pos(), fmt.Sprintf("%s has %d parameters, the budget is %d", name.Name, n, b.Parameters),
				"group related parameters in a struct"))
		}
	}
	for _, f := range t.files {
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				check(n.Name, n.Type)
			case *ast.TypeSpec:
				if typ, ok := n.Type.(*ast.FuncType); ok {
					check(n.Name, typ)
				}
			case *ast.InterfaceType:
				for _, m := range n.Methods.List {
					if typ, ok := m.Type.(*ast.FuncType); ok {
						check(m.Names[0], typ)
					}
				}
			}
			return true
		})
	}
	return found, nil
}

// findInits finds functions named init.
func findInits(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, f := range t.files {
		for _, decl := range f.Syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				found = append(found, t.at(fn.Pos(), "init runs in every program that imports the package",
					"use an ordinary function and call it where it is needed"))
			}
		}
	}
	return found, nil
}
