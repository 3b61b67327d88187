package v1alpha1

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/api.md")

const docs = "../../../../docs/api.md"

const head = `# The API of a running proxy

Generated from pkg/apis/status/v1alpha1; do not edit.

A running proxy shows what it does at /api/v1alpha1 of its metrics address (127.0.0.1:10249 by default), in JSON. The commands
"kube-proxy service", "explain", "render" and "drift" are clients of it; "trace" takes names from it, and prints the objects at the
end.

` + "```console" + `
curl -s 127.0.0.1:10249/api/v1alpha1/services/default/web?connections=true
kubectl -n kube-system exec ds/kube-proxy -- kube-proxy service list -A
` + "```" + `

* **Read-only.** It answers to GET and HEAD. Nothing on it changes state or shows secrets: it knows Services, EndpointSlices and
  this Node, with names and addresses of all namespaces.
* **Local.** It answers only to clients on this machine, whatever address the metrics are served on: from a loopback address, or
  from the address that they connect to. Others get 403. Use ` + "`kubectl exec` or `kubectl port-forward`" + ` to reach it from elsewhere.
* **Not for web pages.** A Host header other than localhost, a loopback address or the server's own address gets 421, so that no
  page can read it by pointing a name to this address (DNS rebinding). On a loopback address the other pages of the port, such as
  /metrics, answer 421 to names that anybody may own: use localhost, an IP address or the node's name.
* **In turn.** Long answers are made one after the other, and wait for their readers without a turn. At most 8 MB wait; then the
  oldest one of the user that has the most is given up, and its connection closed. A reader has 30 seconds.
* **On demand.** Everything is computed for a request. Counters are read from the kernel after the request and within 2
  seconds, by one reader at a time for the API, metrics and the status page; requests that wait share the next reading. If that
  fails the rest of the answer is complete, and connectionsError says why. For /comparison the proxy reads all of its rules from
  the kernel, within 30 seconds, and then pauses four times as long as that took.
* **Consistent.** Everything but /info is the state that was last put in force in all IP families. /info shows the last sync, too,
  which may have failed.
* **Versioned.** Within a version fields are only added. An error is a Status with the HTTP status code.

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
			doc := ""
			for _, field := range structure.Fields.List {
				if text := paragraph(field.Doc); text != "" {
					doc = text
				} else if len(field.Names) > 0 && doc == "" {
					t.Errorf("%s.%s has no comment", spec.(*ast.TypeSpec).Name.Name, field.Names[0])
				}
				b.WriteString(row(t, field, doc))
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

// row is a field's row. A field that shares the comment of the one before has it too.
func row(t *testing.T, field *ast.Field, doc string) string {
	if len(field.Names) == 0 {
		return fmt.Sprintf("| | %s | its fields |\n", typeText(field.Type))
	}
	tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
	name, options, _ := strings.Cut(tag, ",")
	if name == "" {
		t.Errorf("field %s has no name in JSON", field.Names[0])
	}
	kind := typeText(field.Type)
	if options != "" {
		kind += ", optional"
	}
	return fmt.Sprintf("| %#q | %s | %s |\n", name, kind, strings.ReplaceAll(doc, "|", `\|`))
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
