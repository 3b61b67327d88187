package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A package-level variable is allowed if it is effectively constant: an error to compare with, a regular expression, an embedded file, a
// table (gochecknoglobals would forbid tables). The rule finds variables of types that are meant to change, and code that changes a variable
// or takes its address.

// constantPointers are the pointer types whose targets do not change, or in the case of test flags only before the tests.
var constantPointers = []string{"*regexp.Regexp", "*strings.Replacer", "*bool", "*int", "*string", "*time.Duration", "*text/template.Template", "*html/template.Template"}

// mutators are the functions that change their first argument.
var mutators = []string{
	"sort.Sort", "sort.Stable", "sort.Slice", "sort.SliceStable", "sort.Strings", "sort.Ints",
	"slices.Sort", "slices.SortFunc", "slices.SortStableFunc", "slices.Reverse", "slices.Delete", "slices.DeleteFunc", "slices.Insert",
	"slices.Replace", "slices.Compact", "slices.CompactFunc", "maps.Copy", "maps.DeleteFunc", "maps.Insert",
	"append", "clear", "close", "copy", "delete",
}

// variables finds the package variables of a file that could change, and what it does to change one.
func variables(module string, info *types.Info, f *ast.File, report reporter) {
	for id, obj := range info.Defs {
		if v, ok := obj.(*types.Var); ok && id.Name != "_" && v.Parent() == v.Pkg().Scope() && f.FileStart <= id.Pos() && id.Pos() < f.FileEnd {
			if why := mutable(v.Type()); why != "" {
				report(id.Pos(), "package variable %s %s: make it a field of its owner, or the result of a function", id.Name, why)
			}
		}
	}
	change := func(e ast.Expr, how string) {
		v := packageVar(info, e)
		// Other modules' variables may have other ways to change them safely.
		if v != nil && (how == "assigned to" || v.Pkg().Path() == module || strings.HasPrefix(v.Pkg().Path(), module+"/")) {
			report(e.Pos(), "package variable %s is %s: copy it, or make it a field of the type that changes it", v.Name(), how)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if n.Tok != token.DEFINE {
					change(e, "assigned to")
				}
			}
		case *ast.IncDecStmt:
			change(n.X, "assigned to")
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				change(n.Key, "assigned to")
				change(n.Value, "assigned to")
			}
		case *ast.SendStmt:
			change(n.Chan, "sent on")
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				change(n.X, "accessed by its address")
			}
		case *ast.CallExpr:
			changeByCall(info, n, change)
		}
		return true
	})
}

// changeByCall reports what a call changes: the first argument of a mutator, or what has a method with a pointer receiver.
func changeByCall(info *types.Info, call *ast.CallExpr, change func(ast.Expr, string)) {
	if len(call.Args) > 0 && slices.Contains(mutators, types.ExprString(ast.Unparen(call.Fun))) {
		change(call.Args[0], "passed to "+types.ExprString(call.Fun))
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	s := info.Selections[sel]
	if s == nil || s.Kind() != types.MethodVal {
		return
	}
	fn := s.Obj().(*types.Func)
	_, byPointer := fn.Signature().Recv().Type().(*types.Pointer)
	_, isPointer := s.Recv().Underlying().(*types.Pointer)
	if byPointer && !isPointer && fn.Name() != "AddToScheme" { // which only reads its receiver
		change(sel.X, "changed by its method "+sel.Sel.Name)
	}
}

// mutable returns why a variable of this type is mutable, or "".
func mutable(t types.Type) string {
	isSync := func(t types.Type) bool {
		return strings.HasPrefix(types.TypeString(t, nil), "sync.") || strings.HasPrefix(types.TypeString(t, nil), "sync/atomic.")
	}
	switch under := t.Underlying().(type) {
	case *types.Chan:
		return "is a channel"
	case *types.Pointer:
		if !slices.Contains(constantPointers, types.TypeString(types.Unalias(t), nil)) {
			return "points to what can change"
		}
	case *types.Array:
		return mutable(under.Elem())
	case *types.Struct:
		if isSync(t) {
			return "is a " + types.TypeString(t, nil)
		}
		for field := range under.Fields() {
			if isSync(field.Type()) {
				return "holds a " + types.TypeString(field.Type(), nil)
			}
		}
	}
	return ""
}

// packageVar returns the package-level variable that an expression refers to: the variable itself, or a field, an element, a slice or the
// target of it.
func packageVar(info *types.Info, e ast.Expr) *types.Var {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
			if _, ok := info.Uses[x.Sel].(*types.Var); ok && info.Selections[x] == nil {
				e = x.Sel // a variable of another package
			}
		case *ast.Ident:
			if v, ok := info.Uses[x].(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				return v
			}
			return nil
		default:
			return nil
		}
	}
}
