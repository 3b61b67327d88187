package arch

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kernelTools are the packages that are useful only in tests that run as root.
var kernelTools = []string{"test/netns/...", "pkg/proxy/backend/backendtest/..."}

// findUnnamedKernelTests finds tests that use network namespaces and are not named TestKernel... . `make test` runs the
// tests of that name as root and without the race detector, and all others with it.
func findUnnamedKernelTests(t *Tree) ([]Violation, error) {
	var found []Violation
	for _, f := range t.files {
		if !f.Test || !slices.ContainsFunc(f.Syntax.Imports, func(spec *ast.ImportSpec) bool {
			dir, ours := t.ownFolder(importPath(spec))
			return ours && matchAny(kernelTools, dir)
		}) {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && strings.HasPrefix(fn.Name.Name, "Test") && fn.Recv == nil && fn.Name.Name != "TestMain" &&
				!strings.HasPrefix(fn.Name.Name, "TestKernel") {
				found = append(found, t.at(fn.Pos(), fn.Name.Name+" is in a file that uses network namespaces",
					"name it TestKernel..., or move it to a file that does not"))
			}
		}
	}
	return found, nil
}

// unfinished matches the usual marks of unfinished work.
var unfinished = regexp.MustCompile(`\b(TODO|FIXME)\b`)

// findUnfinished finds such marks in the comments of Go files, generated ones too, and in scripts and makefiles.
func findUnfinished(t *Tree) ([]Violation, error) {
	var found []Violation
	const remedy = "finish it, or file an issue"
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, group := range f.Syntax.Comments {
				for _, c := range group.List {
					if mark := unfinished.FindString(c.Text); mark != "" {
						found = append(found, t.at(c.Pos(), "a comment contains "+mark, remedy))
					}
				}
			}
		}
	}
	err := filepath.WalkDir(t.Root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != t.Root && ignored(entry.Name()) && entry.Name() != ".ci":
			return fs.SkipDir
		case entry.IsDir() || !isScript(name):
			return nil
		}
		rel, err := filepath.Rel(t.Root, name)
		if err != nil {
			return err
		}
		marks, err := marksIn(name)
		for line, mark := range marks {
			found = append(found, Violation{File: filepath.ToSlash(rel), Line: line, Problem: "the line contains " + mark, Remedy: remedy})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read scripts: %w", err)
	}
	return found, nil
}

// isScript reports whether a file is a script, a makefile, or another file whose comments begin with a hash.
func isScript(name string) bool {
	return filepath.Base(name) == "Makefile" || filepath.Base(filepath.Dir(name)) == ".ci" ||
		slices.Contains([]string{".sh", ".yaml", ".yml", ".mk"}, filepath.Ext(name))
}

// marksIn returns the marks in a file by line number.
func marksIn(name string) (map[int]string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	marks, n := map[int]string{}, 0
	for line := range strings.Lines(string(data)) {
		n++
		if mark := unfinished.FindString(line); mark != "" {
			marks[n] = mark
		}
	}
	return marks, nil
}
