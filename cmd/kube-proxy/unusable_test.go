//go:build linux

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
)

// TestKernelUnusable starts kube-proxy without nft and iptables: in either mode it ends with an error that says what to do.
// --cleanup finds nothing to remove then, and logs nothing about it.
func TestKernelUnusable(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	for _, test := range []struct {
		name  string
		flags []string
		code  int
		says  string
		lines int // of the log and errors, where that is known
	}{
		{"nftables", []string{"--proxy-mode", "nftables"}, app.ExitFailure, "install nftables 1.0.1 or later", 0},
		{"iptables", []string{"--proxy-mode", "iptables"}, app.ExitFailure, "install the iptables package", 0},
		{"cleanup", []string{"--cleanup"}, 0, "kube-proxy ended", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := w.lab.Node1.Command(w.program, append([]string{"--manifests", w.dir, "--hostname-override", "node1",
				"--bind-address", w.lab.Node1.IPv4.String(), "--metrics-bind-address", "127.0.0.1:10249"}, test.flags...)...)
			cmd.Env = []string{"PATH=" + t.TempDir()}
			defer context.AfterFunc(ctx, func() { _ = cmd.Kill() })()
			out, err := cmd.CombinedOutput()
			if ctx.Err() != nil {
				t.Fatalf("still running after %s:\n%s", patience, out)
			}
			if cmd.ProcessState.ExitCode() != test.code {
				t.Errorf("ended with %v, want code %d", err, test.code)
			}
			if lines := strings.Count(string(out), "\n"); !strings.Contains(string(out), test.says) || test.lines > 0 && lines != test.lines {
				t.Errorf("printed %d lines: %s\nwant %q", lines, out, test.says)
			}
		})
	}
}
