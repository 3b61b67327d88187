package view

import (
	"bytes"
	"html/template"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/cases"
)

// TestTemplates executes the templates with html/template, too, also with names that break out of careless HTML: both make the same
// documents.
func TestTemplates(t *testing.T) {
	kept := template.Must(template.New("page").Funcs(functions()).Parse(markup))
	own, err := parseTemplates("page", markup, functions())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.lives()
		f.page.templates = own
		for _, name := range append(hostileNames(), "web") {
			s, err := cases.Snapshot(shopObjects, cluster.IPv4)
			if err != nil {
				t.Fatal(err)
			}
			f.program(renamed(s, name), nil)
			path := serviceURL(cluster.ServiceName{Namespace: name, Name: name + "web"})
			for _, target := range []string{"/", "/?show=problems&sort=-rate&q=web", "/?sort=" + strings.Repeat("%22%3E", 3), path, path + "-absent"} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+target, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				r.SetPathValue("namespace", name)
				r.SetPathValue("name", strings.TrimPrefix(r.URL.Path, "/services/"+name+"/"))
				state, d := f.observer.State(), &document{}
				d.Head, d.Title = f.page.head(state), name
				fill := f.page.overview
				if strings.HasPrefix(target, "/services") {
					fill = f.page.service
				}
				if err := fill(r, state, d); err != nil {
					d.Error = err.Error()
				}
				var want bytes.Buffer
				if err := kept.Execute(&want, d); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(parsed(t, want.Bytes()), parsed(t, f.page.html(d))); diff != "" {
					t.Errorf("%q, %s (-html/template +own):\n%s", name, target, diff)
				}
			}
		}
	})
}

// parsed lists the nodes of a document.
func parsed(t *testing.T, text []byte) (nodes []string) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for node := range root.Descendants() {
		line := node.Data
		for _, a := range node.Attr {
			line += " " + a.Key + "=" + a.Val
		}
		nodes = append(nodes, line)
	}
	return nodes
}
