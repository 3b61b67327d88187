package findings

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestFindingsDocs compares docs/findings.md with the table of codes; "make docs" rewrites it.
func TestFindingsDocs(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "findings.md")
	if *update {
		if err := os.WriteFile(path, []byte(markdown()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), markdown()); diff != "" {
		t.Errorf("docs/findings.md is out of date; run \"make docs\" (-file +table):\n%s", diff)
	}
}

// markdown returns the table of codes as documentation: each code in the first of its groups.
func markdown() string {
	var b strings.Builder
	b.WriteString(docsHead)
	for _, group := range Groups() {
		fmt.Fprintf(&b, "\n## Group %s\n\n%s\n\n| code, severity | what is found | what to do |\n|---|---|---|\n", group, group.about())
		var others []string
		for _, d := range Definitions() {
			switch slices.Index(d.Groups, group) {
			case -1:
			case 0:
				fmt.Fprintf(&b, "| `%s` %s | %s | %s |\n", d.Code, d.Severity, d.Finds, d.Remedy)
			default:
				others = append(others, "`"+string(d.Code)+"`")
			}
		}
		if others != nil {
			fmt.Fprintf(&b, "\nAlso: %s.\n", strings.Join(others, ", "))
		}
	}
	return b.String()
}

const docsHead = `# Findings

<!-- Generated from pkg/findings by "make docs"; do not edit. -->

The codes of ` + "`kube-proxy analyze`" + ` and ` + "`kube-proxy audit`" + `. Codes never change; ` + "`--skip CODE`" + ` leaves one out.

Severities: **error**: wanted traffic is lost, or reaches the wrong place. **warning**: it may be, or will be.
**info**: it is probably intended.

Endpoints with a node name count as local.
`

func (g Group) about() string {
	switch g {
	case Upgrade:
		return "What a change to this proxy, another mode or another version breaks: `kube-proxy audit`."
	case Endpoints:
		return "Where connections to a Service go, and why they may go nowhere."
	case Addresses:
		return "Whether the addresses and ports of Services are served, and to whom."
	default:
		return "What the proxy needs to know of Nodes."
	}
}
