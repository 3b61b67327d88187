package v1alpha1

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/api.md")

const docs = "../../../../docs/api.md"

const head = `# The API of a running proxy

Generated from pkg/apis/status/v1alpha1; do not edit.

A running proxy serves JSON below /api/v1alpha1 of its metrics address (127.0.0.1:10249 by default). The commands "kube-proxy service",
"explain", "render", "drift" and "trace" are clients of it.

` + "```console" + `
curl -s 127.0.0.1:10249/api/v1alpha1/services/default/web?connections=true
kubectl -n kube-system exec kube-proxy-x7k2p -- kube-proxy service list -A
` + "```" + `

* **Read-only.** It answers to GET and HEAD. It knows Services, EndpointSlices and this Node, of all namespaces, and no secrets.
* **Local.** It answers only to clients on this machine, whatever address the metrics are served on; others get 403. Use ` + "`kubectl exec`" + `
  or ` + "`kubectl port-forward`" + `.
* **Not for web pages.** A Host header other than localhost, a loopback address or the server's own address gets 421 (DNS rebinding).
* **In turn.** Long answers are made one after the other. At most 8 MB wait for their readers; then the oldest one of the user that has the
  most is given up, and its connection closed. A reader has 30 seconds.
* **On demand.** Counters are read from the kernel after the request and within 2 seconds; if that fails, connectionsError says why, and the
  rest of the answer is complete. For /comparison the proxy reads all of its rules, within 30 seconds, and then pauses four times as long.
* **Consistent.** Everything but /info is the state that was last put in force in all IP families.
* **Versioned.** Within a version fields are only added. An error is a Status with the HTTP status code.

A row with several fields describes them in this order.

`

// TestDocs compares docs/api.md with the types: every struct with its comment, and its fields with theirs.
func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for _, declaration := range declarations(t, "types.go", "history.go", "trace.go") {
		types, ok := declaration.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, spec := range types.Specs {
			structure, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType)
			if !ok || len(structure.Fields.List) == 0 {
				continue
			}
			fmt.Fprintf(&b, "## %s\n\n%s\n\n| field | type | |\n|---|---|---|\n", spec.(*ast.TypeSpec).Name.Name, paragraph(types.Doc))
			for _, group := range sharing(structure.Fields.List) {
				if len(group[0].Names) > 0 && group[0].Doc == nil {
					t.Errorf("%s.%s has no comment", spec.(*ast.TypeSpec).Name.Name, group[0].Names[0])
				}
				b.WriteString(row(t, group))
			}
			b.WriteString("\n")
		}
	}
	got := strings.TrimSuffix(b.String(), "\n")
	if *update {
		if err := os.WriteFile(docs, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/api.md differs (-file +now); run make docs:\n%s", diff)
	}
}

// declarations returns those of several files.
func declarations(t *testing.T, files ...string) (all []ast.Decl) {
	t.Helper()
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file.Decls...)
	}
	return all
}

// sharing returns the fields in groups that share a comment: that of the first.
func sharing(fields []*ast.Field) (groups [][]*ast.Field) {
	for _, field := range fields {
		if last := len(groups) - 1; last >= 0 && field.Doc == nil && len(field.Names) > 0 && len(groups[last][0].Names) > 0 {
			groups[last] = append(groups[last], field)
			continue
		}
		groups = append(groups, []*ast.Field{field})
	}
	return groups
}

// row is the row of fields that share a comment, without their names at its beginning.
func row(t *testing.T, fields []*ast.Field) string {
	if len(fields[0].Names) == 0 {
		return fmt.Sprintf("| | %s | its fields |\n", typeText(fields[0].Type))
	}
	var names, keys, kinds []string
	for _, field := range fields {
		name, options, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
		if name == "" {
			t.Errorf("field %s has no name in JSON", field.Names[0])
		}
		kind := typeText(field.Type)
		if options != "" {
			kind += ", optional"
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		names, keys = append(names, field.Names[0].Name), append(keys, fmt.Sprintf("%#q", name))
	}
	doc := paragraph(fields[0].Doc)
	all := strings.Join(names, ", ")
	if last := len(names) - 1; last > 0 {
		all = strings.Join(names[:last], ", ") + " and " + names[last]
	}
	for _, verb := range []string{" is ", " are "} {
		doc = strings.TrimPrefix(doc, all+verb)
	}
	return fmt.Sprintf("| %s | %s | %s |\n", strings.Join(keys, ", "), strings.Join(kinds, "; "), strings.ReplaceAll(doc, "|", `\|`))
}

// typeText names a type in words of JSON.
func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeText(e.X)
	case *ast.ArrayType:
		return "list of " + typeText(e.Elt)
	case *ast.MapType:
		return "map of " + typeText(e.Value)
	case *ast.SelectorExpr: // time.Time
		return "time"
	case *ast.Ident:
		switch {
		case e.Name == "bool":
			return "boolean"
		case strings.HasPrefix(e.Name, "int"), strings.HasPrefix(e.Name, "uint"), strings.HasPrefix(e.Name, "float"):
			return "number"
		}
		return e.Name
	}
	return ""
}

func paragraph(group *ast.CommentGroup) string {
	return strings.Join(strings.Fields(group.Text()), " ")
}
