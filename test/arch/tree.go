package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is the parsed source of a module and of the modules nested in it.
type Tree struct {
	// Root is the folder of the main module's go.mod.
	Root string
	// Module is the main module's path.
	Module string
	// Packages has one entry for each folder with Go files, sorted by folder.
	Packages []*Package

	fset   *token.FileSet
	byPath map[string]*Package
}

// Package is a folder of Go files: the package itself, its tests, and its external tests.
type Package struct {
	// Dir is the folder relative to the root, with slashes; "." for the root.
	Dir string
	// Path is the import path.
	Path string
	// Files is sorted by name.
	Files []*File
}

// File is one Go file, parsed with its comments.
type File struct {
	// Name is the path relative to the root, with slashes.
	Name string
	// Test reports whether the name ends in _test.go.
	Test bool
	// Generated reports whether the file has the comment of https://go.dev/s/generatedcode.
	Generated bool
	// Lines is the number of lines.
	Lines int
	// Syntax is the parsed file.
	Syntax *ast.File
}

// external reports whether f belongs to the external test package of its folder.
func (f *File) external() bool {
	return f.Test && strings.HasSuffix(f.Syntax.Name.Name, "_test")
}

// Load parses every Go file below root, which contains the go.mod of the main module. Like the go command it ignores
// folders named testdata or vendor, and names that begin with a dot or an underscore. It returns an error if a file does
// not parse.
func Load(root string) (*Tree, error) {
	t := &Tree{Root: root, fset: token.NewFileSet(), byPath: map[string]*Package{}}
	modules := map[string]string{} // folder to module path
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case entry.IsDir() && rel != "." && ignored(entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			modules[rel], err = modulePath(name, modules[path.Dir(rel)], rel)
			return err
		case strings.HasSuffix(rel, ".go") && !ignored(entry.Name()):
			return t.add(rel, modules[path.Dir(rel)])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the source below %s: %w", root, err)
	}
	t.Module = modules["."]
	for _, p := range t.byPath {
		t.Packages = append(t.Packages, p)
	}
	slices.SortFunc(t.Packages, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return t, nil
}

// ignored reports whether the go command ignores a file or folder of this name.
func ignored(name string) bool {
	return name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// modulePath returns the import path of a folder: the module path of its go.mod or, without one, the path derived from its
// parent. Only the root must have a go.mod.
func modulePath(dir, parent, rel string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		if rel == "." || !os.IsNotExist(err) {
			return "", err
		}
		return path.Join(parent, path.Base(rel)), nil
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("%s/go.mod has no module line", rel)
}

// add parses one file and adds it to the package of its folder.
func (t *Tree) add(rel, importPath string) error {
	src, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(rel)))
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(t.fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p := t.byPath[importPath]
	if p == nil {
		p = &Package{Dir: path.Dir(rel), Path: importPath}
		t.byPath[importPath] = p
	}
	p.Files = append(p.Files, &File{
		Name:      rel,
		Test:      strings.HasSuffix(rel, "_test.go"),
		Generated: ast.IsGenerated(syntax),
		Lines:     bytes.Count(src, []byte("\n")),
		Syntax:    syntax,
	})
	return nil
}

// files yields every file that is not generated.
func (t *Tree) files(yield func(*Package, *File) bool) {
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if !f.Generated && !yield(p, f) {
				return
			}
		}
	}
}

// Violation is one violation of a rule.
type Violation struct {
	// Rule is the name of the rule.
	Rule string
	// File is relative to the root; Line counts from 1.
	File string
	Line int
	// Problem describes the violation, and Remedy what to do about it.
	Problem, Remedy string
}

// String formats the violation so that editors and CI systems show it as a link.
func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s; %s (rule %q of test/arch)", v.File, v.Line, v.Problem, v.Remedy, v.Rule)
}

// at returns a violation at a position in the tree; the rule's name is filled in by [Check].
func (t *Tree) at(pos token.Pos, problem, remedy string) Violation {
	p := t.fset.PositionFor(pos, false)
	return Violation{File: p.Filename, Line: p.Line, Problem: problem, Remedy: remedy}
}

// Rule finds the violations of one rule.
type Rule struct {
	// Name is short, unique, and part of every message.
	Name string
	// Find returns the violations in any order.
	Find func(*Tree) ([]Violation, error)
}

// Rules returns all rules, with the given budgets.
func Rules(b Budgets) []Rule {
	return []Rule{
		{"imports", findImports},
		{"libraries", findLibraries},
		{"file circles", findFileCircles},
		{"purity", findImpurities},
		{"modes", findNamedModes},
		{"wiring", findComputations},
		{"function length", b.findLongFunctions},
		{"file length", b.findLongFiles},
		{"parameters", b.findLongParameterLists},
		{"package comment", findUndocumentedPackages},
		{"doc comment", findUndocumented},
		{"init", findInits},
		{"variables", findMutableVariables},
		{"unfinished", findUnfinished},
		{"kernel tests", findUnnamedKernelTests},
		{"subtests", findSubtestsInside},
	}
}

// Check applies the rules and returns the violations, sorted by position.
func (t *Tree) Check(rules []Rule) ([]Violation, error) {
	var all []Violation
	for _, rule := range rules {
		found, err := rule.Find(t)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", rule.Name, err)
		}
		for _, v := range found {
			v.Rule = rule.Name
			all = append(all, v)
		}
	}
	slices.SortStableFunc(all, func(a, b Violation) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return all, nil
}
