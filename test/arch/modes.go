package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// modeUsers are the places that may name a proxy mode: the API, the doors, a backend's own folder, the table of modes and
// the flags. Everything else must work with any backend. A place that ends in .go is a file, all others are patterns of
// folders as in [row].
var modeUsers = []string{
	"pkg/apis/config/...", "pkg/features/...", "pkg/kernel/...",
	"pkg/proxy/backend/*/...",
	"cmd/kube-proxy/app/backends.go", "cmd/kube-proxy/app/flags.go",
	"test/...", "build/...",
}

// modeFolders are the packages that are one mode's.
var modeFolders = []string{"pkg/proxy/backend/*/..."}

var (
	modeConstant = regexp.MustCompile(`^ProxyMode[A-Z]`)
	// modeLiteral matches a name that is or contains a mode's, such as that of a metric. Prose, which has spaces, may mention
	// modes.
	modeLiteral = regexp.MustCompile(`^[^ \n]*(iptables|nftables|ipvs)[^ \n]*$`)
)

// findNamedModes finds constants, imports and string literals that name a proxy mode outside of modeUsers.
func findNamedModes(t *Tree) ([]Violation, error) {
	var found []Violation
	const remedy = "ask the backend through an interface of package backend, or add a field to its row in cmd/kube-proxy/app/backends.go"
	for p, f := range t.files {
		if f.Test || mayNameModes(p, f) {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			if dir, ours := t.ownFolder(importPath(spec)); ours && matchAny(modeFolders, dir) {
				found = append(found, t.at(spec.Pos(), fmt.Sprintf("%s imports %s, which is one mode's", f.Name, dir), remedy))
			}
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Ident:
				if modeConstant.MatchString(n.Name) {
					found = append(found, t.at(n.Pos(), f.Name+" uses "+n.Name, remedy))
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING && modeLiteral.MatchString(n.Value) {
					found = append(found, t.at(n.Pos(), f.Name+" contains "+n.Value, remedy))
				}
			}
			return true
		})
	}
	return found, nil
}

// mayNameModes reports whether a file is one of modeUsers.
func mayNameModes(p *Package, f *File) bool {
	return slices.ContainsFunc(modeUsers, func(user string) bool {
		if strings.HasSuffix(user, ".go") {
			ok, err := path.Match(user, f.Name)
			return err == nil && ok
		}
		_, ok := match(user, p.Dir)
		return ok
	})
}
