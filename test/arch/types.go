package arch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// checker type-checks the tree's packages. Our own packages are checked from source, all others are read from the export
// data of the go command. Code whose types cannot be found (a dependency of a nested module, a file for another system) is
// left without types and is not checked.
type checker struct {
	tree    *Tree
	foreign types.Importer
	own     map[string]*types.Package // by import path, without tests
}

// newChecker gets the export data of all packages that the tree imports from other modules.
func newChecker(t *Tree) (*checker, error) {
	exports, err := t.exportData()
	if err != nil {
		return nil, err
	}
	open := func(imported string) (io.ReadCloser, error) {
		name := exports[imported]
		if name == "" {
			return nil, fmt.Errorf("no export data of %s", imported)
		}
		return os.Open(name)
	}
	return &checker{tree: t, foreign: importer.ForCompiler(t.fset, "gc", open), own: map[string]*types.Package{}}, nil
}

// exportData returns the export data files of all imported packages of other modules, by import path.
func (t *Tree) exportData() (map[string]string, error) {
	args := []string{"list", "-e", "-export", "-json=ImportPath,Export", "--"}
	seen := map[string]bool{"unsafe": true, "C": true}
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, spec := range f.Syntax.Imports {
				imported := importPath(spec)
				if _, ours := t.ownFolder(imported); !ours && !seen[imported] {
					seen[imported] = true
					args = append(args, imported)
				}
			}
		}
	}
	exports := map[string]string{}
	if len(seen) == 2 {
		return exports, nil
	}
	// Without cgo, like the program: this uses the same build cache and needs no C compiler.
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Dir = t.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return exports, nil
		} else if err != nil {
			return nil, fmt.Errorf("parse the output of go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
	}
}

// Import implements [types.Importer].
func (c *checker) Import(imported string) (*types.Package, error) {
	if imported == "unsafe" {
		return types.Unsafe, nil
	}
	if p := c.own[imported]; p != nil {
		return p, nil
	}
	if p := c.tree.byPath[imported]; p != nil {
		c.own[imported] = types.NewPackage(imported, path.Base(imported)) // breaks an import cycle, which the compiler reports
		c.own[imported], _ = c.check(p, func(f *File) bool { return !f.Test })
		return c.own[imported], nil
	}
	if p, err := c.foreign.Import(imported); err == nil {
		return p, nil
	}
	p := types.NewPackage(imported, path.Base(imported))
	p.MarkComplete()
	return p, nil
}

// check type-checks the selected files of p.
func (c *checker) check(p *Package, choose func(*File) bool) (*types.Package, *types.Info) {
	var files []*ast.File
	for _, f := range p.Files {
		if choose(f) {
			files = append(files, f.Syntax)
		}
	}
	info := &types.Info{
		Defs:       map[*ast.Ident]types.Object{},
		Uses:       map[*ast.Ident]types.Object{},
		Types:      map[ast.Expr]types.TypeAndValue{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	conf := types.Config{Importer: c, FakeImportC: true, Error: func(error) {}}
	checked, err := conf.Check(p.Path, c.tree.fset, files, info)
	_ = err // the compiler reports type errors, with better messages
	return checked, info
}

// checkAll calls visit for every file with the types of its package, test files included.
func (c *checker) checkAll(visit func(*File, *types.Info)) {
	for _, p := range c.tree.Packages {
		for _, external := range []bool{false, true} {
			choose := func(f *File) bool { return f.external() == external }
			if !slices.ContainsFunc(p.Files, choose) {
				continue
			}
			_, info := c.check(p, choose)
			for _, f := range p.Files {
				if choose(f) && !f.Generated {
					visit(f, info)
				}
			}
		}
	}
}

// packageVar returns the package-level variable that an expression refers to: the variable itself, or a field, an
// element, a slice or the target of it.
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
			if _, ok := info.Uses[x.Sel].(*types.Var); ok && info.Selections[x] == nil {
				e = x.Sel // a variable of another package
				continue
			}
			e = x.X
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

// typeName returns the full name of a named type, with a star for each pointer to it, or "" for other types.
func typeName(t types.Type) string {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		if name := typeName(p.Elem()); name != "" {
			return "*" + name
		}
		return ""
	}
	if b, ok := t.(*types.Basic); ok {
		return b.Name()
	}
	named, ok := t.(*types.Named)
	if !ok {
		return ""
	}
	if pkg := named.Obj().Pkg(); pkg != nil {
		return pkg.Path() + "." + named.Obj().Name()
	}
	return named.Obj().Name()
}

// isPackage reports whether e is the name of the imported package.
func isPackage(info *types.Info, e ast.Expr, imported string) bool {
	id, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	name, ok := info.Uses[id].(*types.PkgName)
	return ok && strings.TrimPrefix(name.Imported().Path(), "vendor/") == imported
}

// isBuiltin reports whether e is the builtin function of this name.
func isBuiltin(info *types.Info, e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	b, ok := info.Uses[id].(*types.Builtin)
	return ok && b.Name() == name
}

// declaredVars yields the package-level variables that a file declares, except blank ones.
func declaredVars(f *File, yield func(*ast.Ident, *ast.ValueSpec)) {
	for _, decl := range f.Syntax.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			if spec, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range spec.Names {
					if name.Name != "_" {
						yield(name, spec)
					}
				}
			}
		}
	}
}
