package cluster_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestAnnotations checks that Annotations returns every constant Annotation...: a source does not decode any other annotation.
func TestAnnotations(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Annotation") {
				return true
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if found++; err != nil || !slices.Contains(cluster.Annotations(), value) {
				t.Errorf("Annotations lacks %s", spec.Names[0].Name)
			}
			return true
		})
	}
	if found != len(cluster.Annotations())-1 { // one is a constant of Kubernetes
		t.Errorf("found %d constants, want %d", found, len(cluster.Annotations())-1)
	}
}
