package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

var update = flag.Bool("update", false, "rewrite docs/troubleshooting.md and docs/commands.md")

// troubleshootingNode is the Node of all scenarios.
const troubleshootingNode = `apiVersion: v1
kind: Node
metadata: {name: node1}
spec: {podCIDRs: [10.244.1.0/24]}
status: {addresses: [{type: InternalIP, address: 172.18.0.11}]}
`

// troubleshootingObjects returns the objects of each section of docs/troubleshooting.md, by its title.
func troubleshootingObjects(t *testing.T) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/troubleshooting.txtar")
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]string{}
	for _, file := range archive.Files {
		objects[file.Name] = string(file.Data)
	}
	return objects
}

// TestDocsTroubleshooting runs every command of docs/troubleshooting.md with the objects of its section, and compares the output.
func TestDocsTroubleshooting(t *testing.T) {
	const doc = "../../../docs/troubleshooting.md"
	before, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	dir, objects, shown := t.TempDir(), troubleshootingObjects(t), map[string]bool{}
	kubeproxy.MustWrite(filepath.Join(dir, "node.yaml"), troubleshootingNode)
	kubeproxy.MustWrite(filepath.Join(dir, "config.yaml.conf"), "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.244.0.0/16\n")
	var after strings.Builder
	section, body, example := "", "", false
	for line := range strings.Lines(string(before)) {
		title, isTitle := strings.CutPrefix(line, "### ")
		switch {
		case example && line != "```\n":
			body += line
			continue
		case example:
			kubeproxy.MustWrite(filepath.Join(dir, "objects.yaml"), objects[section])
			after.WriteString(runExample(t, body, dir))
			example, shown[section] = false, true
		case isTitle:
			section = strings.TrimSpace(title)
		case line == "```console\n":
			body, example = "", true
		}
		after.WriteString(line)
	}
	for section := range objects {
		if !shown[section] {
			t.Errorf("docs/troubleshooting.md has no section %q with a command", section)
		}
	}
	if *update {
		kubeproxy.MustWrite(doc, after.String())
		return
	}
	if diff := cmp.Diff(string(before), after.String()); diff != "" {
		t.Errorf("docs/troubleshooting.md differs (-file +now); run make docs and review:\n%s", diff)
	}
}

// runExample runs the command in the first line of an example and returns the example with its output and exit code.
func runExample(t *testing.T, example, dir string) string {
	t.Helper()
	line, _, _ := strings.Cut(example, "\n")
	arguments, ok := strings.CutPrefix(line, "$ kube-proxy ")
	if !ok {
		t.Fatalf("%q is no command", line)
	}
	var out, stderr bytes.Buffer
	args := append(strings.Fields(arguments), "--manifests", dir, "--node", "node1", "--config", filepath.Join(dir, "config.yaml.conf"))
	code := Run(args, &out, &stderr)
	if stderr.Len() > 0 {
		t.Errorf("%s: %s", line, stderr.String())
	}
	if code != 0 {
		fmt.Fprintf(&out, "$ echo $?\n%d\n", code)
	}
	return line + "\n" + out.String()
}
