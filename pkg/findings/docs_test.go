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

// markdown returns the table of codes as documentation.
func markdown() string {
	var b strings.Builder
	b.WriteString(docsHead)
	for _, group := range Groups() {
		fmt.Fprintf(&b, "\n## Group %s\n\n%s\n\n| code | severity | what is found | what to do |\n|---|---|---|---|\n", group, group.about())
		for _, d := range Definitions() {
			if slices.Contains(d.Groups, group) {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Code, d.Severity, d.Finds, d.Remedy)
			}
		}
	}
	return b.String()
}

const docsHead = `# Findings

<!-- Generated from pkg/findings by "make docs"; do not edit. -->

` + "`kube-proxy analyze`" + ` reads the Services, EndpointSlices, Nodes and ServiceCIDRs of a cluster, or of manifests, and reports what does not
work or may not be intended. ` + "`kube-proxy audit`" + ` is its group upgrade. Each finding has a code. Codes never change; leave one out
with ` + "`--skip CODE`" + `.

Severities: **error**: wanted traffic is lost, or reaches the wrong place. **warning**: it may be, or will be.
**info**: it is probably intended. ` + "`kube-proxy analyze`" + ` exits with 1 if there is a finding of at least the severity of
` + "`--fail-on`" + ` (default warning), and with 2 if not everything could be read.

Which endpoints get connections, and which Service gets an address that several claim, is decided by the code of the proxy itself,
from the point of view of a node that every endpoint with a node name is local to.
`

func (g Group) about() string {
	switch g {
	case Upgrade:
		return "What a change to this proxy, to another mode or to another version changes. `kube-proxy audit` reports these."
	case Endpoints:
		return "Where connections to a Service go, and why they may go nowhere."
	case Addresses:
		return "Whether the addresses and ports of Services are served, and to whom."
	default:
		return "What the proxy needs to know of Nodes."
	}
}
