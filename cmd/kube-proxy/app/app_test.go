package app

import (
	"bytes"
	"strings"
	"testing"
)

// TestPrintableErrors checks that an error shows control characters of its input as question marks, and keeps its lines.
func TestPrintableErrors(t *testing.T) {
	dir := t.TempDir()
	mustWrite(dir+"/one.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a, labels: {\"x\\e[2J\": 1}}\n")
	mustWrite(dir+"/two.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: b, labels: {y: 1}}\n")
	var out, stderr bytes.Buffer
	if code := Run([]string{"analyze", "--manifests", dir}, &out, &stderr); code == 0 {
		t.Error("exit code 0")
	}
	text := stderr.String()
	if !strings.Contains(text, "x?[2J") || strings.Contains(text, "\x1b") || strings.Count(text, "\nerror: ") != 2 {
		t.Errorf("got %q", text)
	}
}
