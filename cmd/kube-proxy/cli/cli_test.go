package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// TestPrintableErrors checks that an error shows control characters of its input as question marks, and keeps its lines.
func TestPrintableErrors(t *testing.T) {
	dir := t.TempDir()
	kubeproxy.MustWrite(dir+"/one.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a, labels: {\"x\\e[2J\": 1}}\n")
	kubeproxy.MustWrite(dir+"/two.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: b, labels: {y: 1}}\n")
	var out, stderr bytes.Buffer
	if code := Run([]string{"analyze", "--manifests", dir}, &out, &stderr); code == 0 {
		t.Error("exit code 0")
	}
	text := stderr.String()
	if !strings.Contains(text, "x?[2J") || strings.Contains(text, "\x1b") || strings.Count(text, "\nerror: ") != 2 {
		t.Errorf("got %q", text)
	}
}
