package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A package-level variable is allowed if it is effectively constant: an error to compare with, a regular expression, an
// embedded file, a table. The rule finds variables of types that are meant to change, and code that changes a variable or
// takes its address.

// constantPointers are the pointer types whose targets do not change, or in the case of test flags only before the tests.
var constantPointers = []string{
	"*regexp.Regexp", "*strings.Replacer", "*text/template.Template", "*html/template.Template",
	"*bool", "*int", "*string", "*time.Duration",
}

// readers are methods with a pointer receiver that only read it.
var readers = []string{"(*k8s.io/apimachinery/pkg/runtime.SchemeBuilder).AddToScheme"}

// mutators are the functions that change their first argument, by package.
var mutators = map[string][]string{
	"sort":   {"Sort", "Stable", "Slice", "SliceStable", "Strings", "Ints"},
	"slices": {"Sort", "SortFunc", "SortStableFunc", "Reverse", "Delete", "DeleteFunc", "Insert", "Replace", "Compact", "CompactFunc"},
	"maps":   {"Copy", "DeleteFunc", "Insert"},
}

// findMutableVariables finds package variables that change or could.
func findMutableVariables(t *Tree) ([]Violation, error) {
	c, err := newChecker(t)
	if err != nil {
		return nil, err
	}
	var found []Violation
	c.checkAll(func(f *File, info *types.Info) {
		declaredVars(f, func(name *ast.Ident, _ *ast.ValueSpec) {
			if obj := info.Defs[name]; obj != nil {
				if why := mutableType(obj.Type()); why != "" {
					found = append(found, t.at(name.Pos(), fmt.Sprintf("package variable %s %s", name.Name, why),
						"make it a field of its owner, or the result of a function"))
				}
			}
		})
		report := func(pos token.Pos, v *types.Var, how string) {
			if how != "assigned to" && t.byPath[v.Pkg().Path()] == nil {
				return // other modules' variables may have other ways to change them safely
			}
			found = append(found, t.at(pos, fmt.Sprintf("package variable %s is %s", v.Name(), how),
				"do not change it: copy it, or make it a field of the type that changes it"))
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			change(info, n, report)
			return true
		})
	})
	return found, nil
}

// mutableType returns why a variable of this type is mutable, or "".
func mutableType(t types.Type) string {
	switch under := t.Underlying().(type) {
	case *types.Chan:
		return "is a channel"
	case *types.Pointer:
		if !slices.Contains(constantPointers, typeName(t)) {
			return fmt.Sprintf("points to a %s, which can change", types.TypeString(under.Elem(), (*types.Package).Name))
		}
	case *types.Array:
		return mutableType(under.Elem())
	case *types.Struct:
		if name := typeName(t); strings.HasPrefix(name, "sync.") || strings.HasPrefix(name, "sync/atomic.") {
			return "is a " + name
		}
		for field := range under.Fields() {
			name := typeName(field.Type())
			if strings.HasPrefix(name, "sync.") || strings.HasPrefix(name, "sync/atomic.") {
				return "holds a " + name
			}
		}
	}
	return ""
}

// change reports the package variables that one node changes, or whose address it takes.
func change(info *types.Info, n ast.Node, report func(token.Pos, *types.Var, string)) {
	target := func(e ast.Expr, how string) {
		if v := packageVar(info, e); v != nil {
			report(e.Pos(), v, how)
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, e := range n.Lhs {
				target(e, "assigned to")
			}
		}
	case *ast.IncDecStmt:
		target(n.X, "assigned to")
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			target(n.Key, "assigned to")
			target(n.Value, "assigned to")
		}
	case *ast.SendStmt:
		target(n.Chan, "sent on")
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			target(n.X, "accessed by its address")
		}
	case *ast.CallExpr:
		changeByCall(info, n, target)
	}
}

// changeByCall reports the package variables that a call changes: a builtin, a function in mutators, or a method with a
// pointer receiver.
func changeByCall(info *types.Info, call *ast.CallExpr, target func(ast.Expr, string)) {
	for _, name := range []string{"append", "clear", "close", "copy", "delete"} {
		if isBuiltin(info, call.Fun, name) && len(call.Args) > 0 {
			target(call.Args[0], "passed to "+name)
		}
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	for imported, names := range mutators {
		if isPackage(info, sel.X, imported) && slices.Contains(names, sel.Sel.Name) && len(call.Args) > 0 {
			target(call.Args[0], "passed to "+imported+"."+sel.Sel.Name)
		}
	}
	if s := info.Selections[sel]; s != nil && s.Kind() == types.MethodVal {
		fn, ok := s.Obj().(*types.Func)
		if !ok {
			return
		}
		_, byPointer := fn.Signature().Recv().Type().(*types.Pointer)
		if _, isPointer := s.Recv().Underlying().(*types.Pointer); byPointer && !isPointer && !slices.Contains(readers, fn.FullName()) {
			target(sel.X, "changed by its method "+sel.Sel.Name)
		}
	}
}
