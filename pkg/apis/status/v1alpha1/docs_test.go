package v1alpha1

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/api.md")

const docs = "../../../../docs/api.md"

const head = `# The API of a running proxy

Generated from pkg/apis/status/v1alpha1; do not edit.

A running proxy serves JSON below /api/v1alpha1 of its metrics address (127.0.0.1:10249 by default).

` + "```console" + `
curl -s 127.0.0.1:10249/api/v1alpha1/services/default/web?connections=true
` + "```" + `

* **Read-only and local.** It answers GET and HEAD to clients on this machine, whatever the metrics address; others get 403: use
  ` + "`kubectl port-forward`" + `. A Host header other than localhost, a loopback address or the server's own gets 421 (DNS rebinding).
* **In force.** Except /info and /history, answers describe the state that was last in force in any IP family; a failing family, which /info
  names, has an earlier one. Before the first sync they are 503.
* **Bounded.** Long answers are made one after the other; a reader has 30 seconds, and may be disconnected if more than 8 MB of answers wait
  for readers. /comparison reads all rules, and /connections conntrack's table, in at most 25 seconds; each then rests four times as long as it
  took.
* **Versioned.** Within a version fields are only added. An error is a Status with the HTTP status code.

All objects have kind and apiVersion (serviceproxy/v1alpha1); [the package](../pkg/apis/status/v1alpha1), which clients in Go may import, describes
their fields. connections=true adds numbers of connections since the kernel created the counter: a change of the number of endpoints replaces it.

`

// served finds where an object is served, and with which parameters, in its comment.
var served = regexp.MustCompile(`^(.*) Served at (\S+?)(?:, with the parameters? (.*))?\.$`)

// TestDocs compares the table of docs/api.md with the comments of the objects that are served.
func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("| path | parameters | object |\n|---|---|---|\n")
	for _, file := range []string{"types.go", "history.go"} {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range syntax.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			name := types.Specs[0].(*ast.TypeSpec).Name.Name
			about := strings.Join(strings.Fields(types.Doc.Text()), " ")
			if of := served.FindStringSubmatch(about); of != nil {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", of[2], of[3], of[1])
			} else if strings.Contains(about, "Served at") {
				t.Errorf("%s: %q does not say where it is served", name, about)
			}
		}
	}
	if *update {
		if err := os.WriteFile(docs, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(page), b.String()); diff != "" {
		t.Errorf("docs/api.md differs (-file +now); run make docs:\n%s", diff)
	}
}
