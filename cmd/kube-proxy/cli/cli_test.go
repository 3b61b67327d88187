package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
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

// TestFullDisk checks that commands fail if their output cannot be written: help, and those that do not look, too.
func TestFullDisk(t *testing.T) {
	directory := t.TempDir()
	kubeproxy.MustWrite(directory+"/config", kubeproxy.LatestHead)
	for _, line := range []string{"--help", "service", "config explain", "config explain mode", "config validate " + directory + "/config", "version"} {
		var errs bytes.Buffer
		if code := Run(strings.Fields(line), io.Discard, &errs); code != 0 {
			t.Errorf("%s: exit code %d, %s", line, code, &errs)
		}
		errs.Reset()
		if code := Run(strings.Fields(line), &smallDisk{}, &errs); code != app.ExitFailure || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%s onto a full disk: exit code %d, %s", line, code, &errs)
		}
	}
}

// TestMissingArgument checks that an error about the number of arguments shows which there are.
func TestMissingArgument(t *testing.T) {
	var errs bytes.Buffer
	if code := Run([]string{"service", "describe"}, io.Discard, &errs); code != app.ExitUsage || !strings.Contains(errs.String(), "received 0: kube-proxy service describe [NAMESPACE/]NAME") {
		t.Errorf("exit code %d, %s", code, &errs)
	}
}
