package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
)

// layered are the packages whose files must not form a circle: each file can be read knowing only those that it uses.
var layered = []string{"pkg/proxy/backend/*"}

// use is the first place where a file uses something that another file of its package declares.
type use struct {
	from, to string
	pos      token.Pos
	name     string
}

// findFileCircles finds files of one package that use each other, directly or through others. A file uses another if it
// names a function, method, type, variable or constant that the other declares; fields belong to their type. Tests may use
// everything.
func findFileCircles(t *Tree) ([]Violation, error) {
	var c *checker
	var found []Violation
	for _, p := range t.Packages {
		if !matchAny(layered, p.Dir) {
			continue
		}
		if c == nil {
			var err error
			if c, err = newChecker(t); err != nil {
				return nil, err
			}
		}
		for _, circle := range circles(uses(c, p)) {
			var way []string
			for _, u := range circle {
				way = append(way, fmt.Sprintf("%s uses %s of %s", path.Base(u.from), u.name, path.Base(u.to)))
			}
			found = append(found, t.at(circle[0].pos, "files use each other: "+strings.Join(way, ", "),
				"move what they share to a file below both"))
		}
	}
	return found, nil
}

// uses returns what each file of p, tests aside, uses of the others, in the order of the files.
func uses(c *checker, p *Package) []use {
	program := func(f *File) bool { return !f.Test }
	_, info := c.check(p, program)
	declaredIn := map[types.Object]string{}
	for _, f := range p.Files {
		for _, decl := range f.Syntax.Decls {
			for _, name := range declaredNames(decl) {
				if obj := info.Defs[name]; obj != nil {
					declaredIn[obj] = f.Name
				}
			}
		}
	}
	var all []use
	for _, f := range p.Files {
		if f.Test {
			continue
		}
		seen := map[string]bool{f.Name: true}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			obj := info.Uses[id]
			if fn, ok := obj.(*types.Func); ok {
				obj = fn.Origin() // of a generic type's method
			}
			if to := declaredIn[obj]; to != "" && !seen[to] {
				seen[to] = true
				all = append(all, use{from: f.Name, to: to, pos: id.Pos(), name: id.Name})
			}
			return true
		})
	}
	return all
}

// declaredNames returns the names that a declaration gives to the package or, of a method, to its type.
func declaredNames(decl ast.Decl) (names []*ast.Ident) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		names = append(names, decl.Name)
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name)
			case *ast.ValueSpec:
				names = append(names, spec.Names...)
			}
		}
	}
	return names
}

// circles returns a shortest circle through each file that is in one, unless an earlier circle has that file already.
func circles(all []use) (found [][]use) {
	covered := map[string]bool{}
	for _, first := range all {
		if covered[first.from] {
			continue
		}
		if back := shortestWay(all, first); back != nil {
			for _, u := range back {
				covered[u.from] = true
			}
			found = append(found, back)
		}
	}
	return found
}

// shortestWay returns the shortest chain of uses that begins with first and ends in the file in which it began, or nil.
func shortestWay(all []use, first use) []use {
	ways := [][]use{{first}}
	reached := map[string]bool{first.to: true}
	for len(ways) > 0 {
		way := ways[0]
		ways = ways[1:]
		end := way[len(way)-1].to
		if end == first.from {
			return way
		}
		for _, u := range all {
			if u.from == end && !reached[u.to] {
				reached[u.to] = true
				ways = append(ways, append(slices.Clone(way), u))
			}
		}
	}
	return nil
}
