package cli

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// TestCheckUsage checks that values that cannot be used end with the exit code of a usage error, before anything is read.
func TestCheckUsage(t *testing.T) {
	bad := filepath.Join(files(t, map[string]string{"bad": kubeproxy.LatestHead + "mode: [\n"}), "bad")
	for _, test := range []struct {
		args []string
		errs string
	}{
		{[]string{"-o", "xml"}, "is not one of text, json, yaml"},
		{[]string{"--proxy-mode", "ipvs"}, `"ipvs" is not one of iptables, nftables`},
		{[]string{"--wait", "-1s"}, "--wait -1s is negative"},
		{[]string{"--skip", "everything"}, `--skip "everything" is not one of config, kernel, tools`},
		{[]string{"--kubeconfig", bad + "s"}, "or --skip api"},
		{[]string{"now"}, "unknown command"},
	} {
		var out, errs bytes.Buffer
		code := Run(append([]string{"check"}, test.args...), &out, &errs)
		if code != app.ExitUsage || out.Len() > 0 || !strings.Contains(errs.String(), test.errs) {
			t.Errorf("%q: exit code %d, %s\n%s", test.args, code, out.String(), errs.String())
		}
	}
}

// TestCheckInvalidConfig checks that a configuration file that cannot be used is a failed check, and not the end of all checks.
func TestCheckInvalidConfig(t *testing.T) {
	directory := files(t, map[string]string{"bad": kubeproxy.LatestHead + "mode: [\n", "wrong": kubeproxy.LatestHead + "mode: nftables\nnodePortAddresses: [x]\n", "good": kubeproxy.LatestHead + "mode: nftables\n", "ipvs": oldHead + "mode: ipvs\n"})
	for file, want := range map[string]string{
		"bad": "is not YAML", "none": "no such file", "wrong": "nodePortAddresses[0]: Invalid value", "good": "ok  config/file", "ipvs": "has no ipvs backend", "ipvs --proxy-mode nftables": "ok  config/file",
	} {
		skipped := strings.Join(slices.DeleteFunc(check.Groups(), func(g string) bool { return g == "config" }), ",")
		var out, errs bytes.Buffer
		code := Run(append([]string{"check", "--skip", skipped, "--config"}, strings.Fields(filepath.Join(directory, file))...), &out, &errs)
		if code != map[bool]int{true: 0, false: app.ExitFailure}[strings.HasPrefix(want, "ok")] || !strings.Contains(out.String(), want) || errs.Len() > 0 {
			t.Errorf("%s: exit code %d, %s\n%s", file, code, out.String(), errs.String())
		}
	}
}

// TestRehearseRefuses checks that the command that writes rules refuses a network namespace that may be in use.
func TestRehearseRefuses(t *testing.T) {
	var out, errs bytes.Buffer
	code := Run([]string{"check", "rehearse", "--proxy-mode", "nftables", "--family", "IPv4"}, &out, &errs)
	if code != app.ExitUsage || !strings.Contains(errs.String(), "run kube-proxy check --pre") {
		t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
}

func TestChecksText(t *testing.T) {
	results := []check.Result{
		{Status: check.OK, Group: "kernel", Check: "rules", Message: "fine"},
		{Status: check.Fail, Group: "settings", Check: "forwarding", Message: "is\x1b[2J 0", Fix: "Set it."},
	}
	text := checksText(results, 0)
	want := "ok    kernel/rules         fine\nfail  settings/forwarding  is?[2J 0\n                             Set it.\n1 ok, 0 warn, 1 fail\n"
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for line := range strings.Lines(checksText(results, 30)) {
		if len(line) > 31 {
			t.Errorf("on 30 columns: %q", line)
		}
	}
}
