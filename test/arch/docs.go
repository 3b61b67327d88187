package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
)

// findUndocumentedPackages finds packages without a package comment. In a folder with only tests, a test file may have it;
// an external test package needs no comment.
func findUndocumentedPackages(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, p := range t.Packages {
		if !slices.ContainsFunc(p.Files, func(f *File) bool { return f.Syntax.Doc.Text() != "" }) {
			found = append(found, t.at(p.Files[0].Syntax.Package, "package "+p.Files[0].Syntax.Name.Name+" has no package comment",
				"describe its purpose in doc.go or above the package clause"))
		}
	}
	return found, nil
}

// wellKnown are the methods of well-known interfaces, which need no doc comment.
var wellKnown = []string{"Error", "Is", "String", "Unwrap", "Read", "Write", "Close", "ServeHTTP", "Len", "Less", "Swap"}

// findUndocumented finds exported names without a doc comment: functions, types, methods of exported types, methods of
// exported interfaces, constants and variables. A comment also applies to the consecutive lines below it, so a group of
// similar names needs only one. Struct fields need no comment. Test files are ignored.
func findUndocumented(t *Tree) ([]Violation, error) {
	var found []Violation
	report := func(kind string, name *ast.Ident) {
		found = append(found, t.at(name.Pos(), fmt.Sprintf("exported %s %s has no doc comment", kind, name.Name),
			"document shape, units, errors and source"))
	}
	for _, f := range t.files {
		if f.Test {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() && mustExplain(decl) && decl.Doc.Text() == "" {
					report("function", decl.Name)
				}
			case *ast.GenDecl:
				t.undocumentedSpecs(decl, report)
			}
		}
	}
	return found, nil
}

// mustExplain reports whether fn is a plain function, or a method of an exported type that is not well known.
func mustExplain(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	if slices.Contains(wellKnown, fn.Name.Name) {
		return false
	}
	typ := fn.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.ParenExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// undocumentedSpecs reports the undocumented parts of a declaration of types, constants or variables. The comment of a
// whole group is enough for constants and variables; each type needs its own.
func (t *Tree) undocumentedSpecs(decl *ast.GenDecl, report func(kind string, name *ast.Ident)) {
	whole := decl.Doc.Text() != "" && (decl.Tok != token.TYPE || !decl.Lparen.IsValid())
	group := block{tree: t}
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			documented := group.next(spec, spec.Doc, spec.Comment) || whole
			for _, name := range spec.Names {
				if name.IsExported() && !documented {
					report(decl.Tok.String(), name)
				}
			}
		case *ast.TypeSpec:
			if !spec.Name.IsExported() {
				continue
			}
			if !whole && spec.Doc.Text() == "" && spec.Comment.Text() == "" {
				report("type", spec.Name)
			}
			t.undocumentedMethods(spec.Type, report)
		}
	}
}

// undocumentedMethods reports the undocumented methods of an interface type.
func (t *Tree) undocumentedMethods(typ ast.Expr, report func(kind string, name *ast.Ident)) {
	iface, ok := typ.(*ast.InterfaceType)
	if !ok {
		return
	}
	group := block{tree: t}
	for _, method := range iface.Methods.List {
		documented := group.next(method, method.Doc, method.Comment)
		for _, name := range method.Names {
			if name.IsExported() && !documented {
				report("method", name)
			}
		}
	}
}

// block tracks consecutive lines of declarations, for which one comment is enough.
type block struct {
	tree       *Tree
	lastLine   int
	documented bool
}

// next reports whether the node has a comment, or directly follows lines that have one.
func (b *block) next(n ast.Node, doc, comment *ast.CommentGroup) bool {
	first := b.tree.fset.Position(n.Pos()).Line
	if doc.Text() != "" || comment.Text() != "" {
		b.documented = true
	} else if first != b.lastLine+1 && b.lastLine != 0 {
		b.documented = false
	}
	b.lastLine = b.tree.fset.Position(n.End()).Line
	return b.documented
}
