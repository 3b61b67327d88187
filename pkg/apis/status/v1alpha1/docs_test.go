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

A running proxy serves JSON below /api/v1alpha1 of its metrics address (127.0.0.1:10249 by default); its commands read it.

` + "```console" + `
curl -s 127.0.0.1:10249/api/v1alpha1/services/default/web?connections=true
` + "```" + `

* **Read-only.** It answers GET and HEAD.
* **Local.** Only clients on this machine are served, whatever the metrics address; others get 403. Use ` + "`kubectl exec`" + ` or
  ` + "`kubectl port-forward`" + `. A Host header other than localhost, a loopback address or the server's own gets 421 (DNS rebinding).
* **In force.** Except /info and /history, answers describe the state that was last in force in all IP families; before the first sync
  they are 503.
* **Bounded.** Long answers are made one after the other; a reader has 30 seconds, and may be disconnected if answers of more than 8 MB wait
  for readers. /comparison reads all rules, and /connections conntrack's table, within 25 seconds; then each pauses four times as long.
* **Versioned.** Within a version fields are only added. An error is a Status with the HTTP status code.

A field without a type is a string, one with ? may be absent; all objects with a path have kind and apiVersion (serviceproxy/v1alpha1). connections and refused are there
with connections=true, and count from when the kernel created the counter: a change of the number of endpoints replaces it. Not served is
PacketTrace, which "kube-proxy trace -o json" prints ([trace.go](../pkg/apis/status/v1alpha1/trace.go)).

`

// TestDocs compares docs/api.md with the types: every struct with its comment, and its fields with theirs.
func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for _, declaration := range declarations(t, "types.go", "history.go") {
		types, ok := declaration.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, spec := range types.Specs {
			structure, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType)
			if !ok || len(structure.Fields.List) == 0 {
				continue
			}
			name := spec.(*ast.TypeSpec).Name.Name
			if name == "TypeMeta" {
				continue
			}
			about := sentence(types.Doc, name)
			fmt.Fprintf(&b, "## %s\n\n%s\n\n", name, strings.ToUpper(about[:1])+about[1:])
			for _, group := range sharing(structure.Fields.List) {
				b.WriteString(item(t, group))
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

// sharing returns the fields that have names, in groups: those without a comment, and those that the comment of the first one names.
func sharing(fields []*ast.Field) (groups [][]*ast.Field) {
	for _, field := range fields {
		if len(field.Names) == 0 { // TypeMeta
			continue
		}
		if last := len(groups) - 1; last >= 0 && field.Doc == nil {
			if doc := groups[last][0].Doc; doc == nil || strings.Contains(doc.Text(), " and "+field.Names[0].Name+" are ") ||
				strings.Contains(doc.Text(), ", "+field.Names[0].Name+" and ") {
				groups[last] = append(groups[last], field)
				continue
			}
		}
		groups = append(groups, []*ast.Field{field})
	}
	return groups
}

// item lists fields that share a comment, with their types unless all are strings.
func item(t *testing.T, fields []*ast.Field) string {
	typed := slices.ContainsFunc(fields, func(field *ast.Field) bool { return typeText(field.Type) != "string" })
	var b strings.Builder
	var names []string
	for i, field := range fields {
		key, options, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
		if key == "" {
			t.Errorf("field %s has no name in JSON", field.Names[0])
		}
		if options != "" {
			key += "?"
		}
		fmt.Fprintf(&b, "%#q", key)
		if kind := typeText(field.Type); typed && (i == len(fields)-1 || kind != typeText(fields[i+1].Type)) {
			b.WriteString(" " + kind)
		}
		if i < len(fields)-1 {
			b.WriteString(", ")
		}
		names = append(names, field.Names[0].Name)
	}
	all := names[0]
	if last := len(names) - 1; last > 0 {
		all = strings.Join(names[:last], ", ") + " and " + names[last]
	}
	if doc := sentence(fields[0].Doc, all); doc != "" {
		return "* " + b.String() + ": " + doc + "\n"
	}
	return "* " + b.String() + "\n"
}

// sentence returns a comment without the names that it begins with, and the verb after them.
func sentence(comment *ast.CommentGroup, names string) string {
	text := strings.Join(strings.Fields(comment.Text()), " ")
	for _, verb := range []string{" is ", " are "} {
		text = strings.TrimPrefix(text, names+verb)
	}
	return text
}

// typeText names a type in words of JSON.
func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeText(e.X)
	case *ast.ArrayType:
		return "[]" + typeText(e.Elt)
	case *ast.MapType:
		return "map[string]" + typeText(e.Value)
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
