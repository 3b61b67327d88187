package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// asProgram is the variable that makes the test binary behave as kube-proxy, so that the end of the process can be tested.
const asProgram = "KUBE_PROXY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "writing" {
		writeSlowly()
		return
	}
	if os.Getenv(asProgram) != "" {
		os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// writeSlowly is a program that writes until its standard input ends.
func writeSlowly() {
	_ = app.Uninterrupted(func() error {
		fmt.Println("writing")
		_, err := io.ReadAll(os.Stdin)
		fmt.Println("written")
		return err
	})
}

// TestWritingIsNotInterrupted checks that SIGTERM does not end the process while it writes, which would leave a temporary
// file behind.
func TestWritingIsNotInterrupted(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), asProgram+"=writing")
	in, err := command.StdinPipe()
	kubeproxy.Must(err)
	out, err := command.StdoutPipe()
	kubeproxy.Must(err)
	kubeproxy.Must(command.Start())
	begun := make([]byte, len("writing\n"))
	_, err = io.ReadFull(out, begun)
	kubeproxy.Must(err)
	kubeproxy.Must(command.Process.Signal(syscall.SIGTERM))
	kubeproxy.Must(in.Close())
	rest, err := io.ReadAll(out)
	waited := command.Wait()
	var exit *exec.ExitError
	late := errors.As(waited, &exit) && exit.Error() == "signal: terminated" // delivered when all was written, on a busy machine
	if err != nil || waited != nil && !late || string(rest) != "written\n" {
		t.Errorf("%v, %v, output %q after SIGTERM, want that writing is finished", err, waited, rest)
	}
}

// program runs kube-proxy as a process of its own.
func program(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Env = append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), errs.String()
}

// subcommand runs "kube-proxy config ..." within the test.
func subcommand(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(append([]string{"config"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// files writes files and gives their directory.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	for name, content := range contents {
		kubeproxy.MustWrite(filepath.Join(directory, name), content)
	}
	return directory
}

const oldHead = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// TestConvertKeepsBehaviour checks that settings with another default in v1alpha2 are written explicitly.
func TestConvertKeepsBehaviour(t *testing.T) {
	directory := files(t, map[string]string{"old": oldHead + "mode: nftables\nclusterCIDR: 10.0.0.0/8\nwindowsRunAsService: true\nwinkernel: {networkName: net}\n"})
	code, out, errs := subcommand("convert", "--from", filepath.Join(directory, "old"))
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	for _, line := range []string{"apiVersion: kubeproxy.config.k8s.io/v1alpha2\n", "bindAddressHardFail: false\n", "configHardFail: false\n",
		"  localhostNodePorts: true\n", "  clusterCIDRs:\n  - 10.0.0.0/8\n", "  runAsService: true\n", "  networkName: net\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is not in:\n%s", line, out)
		}
	}
	if strings.Contains(out, "nodeIPOverride") {
		t.Errorf("an unspecified bindAddress became an override:\n%s", out)
	}
}

// TestConvertToJSON checks that a target that ends in .json is JSON.
func TestConvertToJSON(t *testing.T) {
	directory := files(t, map[string]string{"old": oldHead + "mode: nftables\n"})
	target := filepath.Join(directory, "new.json")
	if code, _, errs := subcommand("convert", "--from", filepath.Join(directory, "old"), "-o", target); code != 0 {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	data, err := os.ReadFile(target)
	if err != nil || !json.Valid(data) {
		t.Errorf("%v; written:\n%s", err, data)
	}
	if file, err := config.ReadFile(target); err != nil || file.Config.Mode != "nftables" {
		t.Errorf("what was written: %v", err)
	}
}

// TestConvertReportsLosses checks that each setting that cannot be converted is reported in a line on standard error, and that
// standard output has only the file.
func TestConvertReportsLosses(t *testing.T) {
	directory := files(t, map[string]string{
		"old":    oldHead + "portRange: 1-2\nipvs: {syncPeriod: 5s}\nfoo: 1\n",
		"latest": kubeproxy.LatestHead + "ipFamilyPolicy: SingleStack\nminSyncPeriod: 0s\n",
	})
	for from, want := range map[string][]string{
		"old": {"warning: " + filepath.Join(directory, "old") + ":5: foo: unknown field",
			"not carried over: portRange: dropped; it has had no effect for years",
			"not carried over: ipvs.syncPeriod: 5s dropped; all modes share one setting, and mode iptables has 30s"},
		"latest": {"not carried over: ipFamilyPolicy: SingleStack dropped; v1alpha1 serves the families that work",
			"not carried over: configHardFail: true dropped; v1alpha1 logs a warning and continues",
			"not carried over: minSyncPeriod: 0s is written as 1ns, which behaves alike; in v1alpha1 0s means the default of 1s"},
	} {
		to := map[string]string{"old": "v1alpha2", "latest": "v1alpha1"}[from]
		code, out, errs := subcommand("convert", "--from", filepath.Join(directory, from), "--to", to)
		if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(errs), "\n")); code != 0 || diff != "" {
			t.Errorf("%s: exit code %d (-want +got):\n%s", from, code, diff)
		}
		if file, err := config.ParseFile(from, []byte(out)); err != nil || file.Version != to || len(file.Warnings) > 0 {
			t.Errorf("%s: the file that was written: %v, %v", from, err, out)
		}
	}
}

// TestConvertWritesNothingOnError checks that an error leaves the target as it is.
func TestConvertWritesNothingOnError(t *testing.T) {
	directory := files(t, map[string]string{"bad": kubeproxy.LatestHead + "syncPeriod: 0s\nlinux: {oomScoreAdj: 9999}\n", "target": "precious"})
	from, target := filepath.Join(directory, "bad"), filepath.Join(directory, "target")
	code, out, errs := subcommand("convert", "--from", from, "-o", target)
	want := from + ":3: syncPeriod: Invalid value: \"0s\": must be greater than 0\n" +
		from + ":3: minSyncPeriod"
	if code != app.ExitFailure || out != "" || !strings.HasPrefix(errs, strings.Split(want, "\n")[0]) || !strings.Contains(errs, from+":4: linux.oomScoreAdj: ") {
		t.Errorf("exit code %d, output %q, errors:\n%s", code, out, errs)
	}
	if data, err := os.ReadFile(target); err != nil || string(data) != "precious" {
		t.Errorf("the target holds %q, %v", data, err)
	}
	good := files(t, map[string]string{"old": oldHead})
	if code, _, errs := subcommand("convert", "--from", filepath.Join(good, "old"), "-o", target); code != 0 {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	if file, err := config.ReadFile(target); err != nil || file.Version != "v1alpha2" {
		t.Errorf("what was written: %v", err)
	}
}

// TestValidate checks the output and the exit codes.
func TestValidate(t *testing.T) {
	directory := files(t, map[string]string{
		"good": kubeproxy.LatestHead, "doubtful": oldHead + "foo: 1\n", "bad": kubeproxy.LatestHead + "mode: x\nfoo: 1\n", "ipvs": oldHead + "mode: ipvs\niptables: {syncPeriod: 30}\n",
		"all":     kubeproxy.LatestHead + "mode: x\nsyncPeriod: 30\nlinux: {oomScoreAdj: 5000}\nfoo: 1\n",
		"map":     "apiVersion: v1\nkind: ConfigMap\ndata:\n  config.conf: |\n    " + strings.ReplaceAll(oldHead, "\n", "\n    ") + "mode: nftables\n",
		"windows": kubeproxy.LatestHead + "mode: kernelspace\nwindows: {runAsService: true}\nwinkernel: {enableDSR: true}\n",
	})
	at := func(name string) string { return filepath.Join(directory, name) }
	kubeproxy.Must(syscall.Mkfifo(at("fifo"), 0o600))
	tests := []struct {
		args      []string
		code      int
		out, errs []string
	}{
		{[]string{at("good"), at("windows")}, 0, []string{at("good") + ": valid (v1alpha2)", at("windows") + ": valid (v1alpha2)"}, nil},
		{[]string{at("doubtful")}, 0, []string{at("doubtful") + ": valid (v1alpha1)"}, []string{at("doubtful") + ":3: foo: unknown field"}},
		{[]string{"--strict", at("doubtful")}, app.ExitFailure, nil, []string{at("doubtful") + ":3: foo: unknown field"}},
		{[]string{at("bad"), at("good")}, app.ExitFailure, []string{at("good") + ": valid"}, []string{at("bad") + ":3: mode: Unsupported value", at("bad") + ":4: foo: unknown field"}},
		{[]string{at("ipvs")}, app.ExitFailure, nil, []string{at("ipvs") + ":3: mode: Invalid value", "use nftables", at("ipvs") + ":4: iptables.syncPeriod: want a duration"}},
		{[]string{at("all")}, app.ExitFailure, nil, []string{at("all") + ":3: mode: Unsupported value", at("all") + ":4: syncPeriod: want a duration",
			at("all") + ":5: linux.oomScoreAdj: Invalid value", at("all") + ":6: foo: unknown field"}},
		{[]string{at("map")}, 0, []string{"valid (v1alpha1)"}, nil},
		{[]string{at("good"), "-o", "json"}, 0, []string{`"file": "` + at("good") + `"`, `"valid": true`, `"errors": []`,
			`"kind": "ConfigValidation"`, `"apiVersion": "serviceproxy/v1alpha1"`}, nil},
		{[]string{at("bad"), "-o", "yaml"}, app.ExitFailure, []string{"  valid: false\n", "  - field: mode\n    line: 3\n    message: 'Unsupported value"}, nil},
		{[]string{at("bad"), "-o", "xml"}, app.ExitUsage, nil, []string{"is not one of text, json, yaml"}},
		{[]string{at("none")}, app.ExitFailure, nil, []string{"no such file"}},
		{nil, app.ExitUsage, nil, []string{"requires at least 1 arg"}},
	}
	for _, tt := range tests {
		code, out, errs := subcommand(append([]string{"validate"}, tt.args...)...)
		if code != tt.code {
			t.Errorf("%v: exit code %d, want %d", tt.args, code, tt.code)
		}
		if len(tt.out) == 0 && out != "" {
			t.Errorf("%v: output %q", tt.args, out)
		}
		for _, want := range tt.out {
			if !strings.Contains(out, want) {
				t.Errorf("%v: %q is not in the output:\n%s", tt.args, want, out)
			}
		}
		for _, want := range tt.errs {
			if !strings.Contains(errs, want) {
				t.Errorf("%v: %q is not in the errors:\n%s", tt.args, want, errs)
			}
		}
	}
}

// TestDefaultsAreTheFile checks that the printed defaults are the same configuration as an empty file.
func TestDefaultsAreTheFile(t *testing.T) {
	for _, version := range config.Versions() {
		code, out, errs := subcommand("defaults", "--version", version)
		if code != 0 || errs != "" {
			t.Fatalf("exit code %d, %s", code, errs)
		}
		file, err := config.ParseFile(version, []byte(out))
		if err != nil || file.Version != version {
			t.Fatalf("%v\n%s", err, out)
		}
		if want := config.DefaultsOf(version); !equality.Semantic.DeepEqual(want, file.Config) {
			t.Errorf("(-want +got):\n%s", cmp.Diff(want, file.Config))
		}
	}
}

// TestExplain checks that everything that is known about a field is printed.
func TestExplain(t *testing.T) {
	code, out, _ := subcommand("explain", "conntrack.maxPerCore")
	for _, want := range []string{"FIELD:    linux.conntrack.maxPerCore <integer>", "DEFAULT:  32768", "FLAG:     --conntrack-max-per-core", "V1ALPHA1: conntrack.maxPerCore", "for each CPU core"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is not in:\n%s", code, want, out)
		}
	}
	if code, _, errs := subcommand("explain", "nothing"); code != app.ExitFailure || !strings.Contains(errs, `no field "nothing"`) {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestProcess checks exit codes and output of the whole program, as far as possible without root.
func TestProcess(t *testing.T) {
	directory := files(t, map[string]string{"ipvs": oldHead + "mode: ipvs\n", "bad": "mode: [\n", "target": "precious", "odd": oldHead + "foo: 1\n",
		"json": kubeproxy.LatestHead + "mode: x\nlogging: {format: json}\n", "two": kubeproxy.LatestHead + "syncPeriod: 30\nmode: ipvs\n"})
	at := func(name string) string { return filepath.Join(directory, name) }
	kubeproxy.Must(syscall.Mkfifo(at("fifo"), 0o600))
	tests := []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--version"}, 0, "Kubernetes v", ""},
		{[]string{"--version=v1.37.2-x"}, app.ExitFailure, "", ""},
		{[]string{"--help"}, 0, "Connection tracking flags:", ""},
		{[]string{"completion", "bash"}, 0, "kube-proxy", ""},
		{[]string{"__complete", "config", "explain", "linux.oom"}, 0, "linux.oomScoreAdj", ""},
		{[]string{"__complete", "--proxy-mode", "n"}, 0, "nftables", ""},
		{[]string{"start"}, app.ExitUsage, "", `unknown command or argument "start"`},
		{[]string{"conifg"}, app.ExitUsage, "", "did you mean config?"},
		{[]string{"config", "convrt"}, app.ExitUsage, "", "did you mean convert?"},
		{[]string{"service", "descrbe"}, app.ExitUsage, "", "did you mean describe?"},
		{[]string{"service", "list", "--address", "x"}, app.ExitUsage, "", `--address: "x" is not an IPv4 or IPv6 address`},
		{[]string{"config", "convert", at("ipvs")}, 0, "mode: ipvs\n", ""},
		{[]string{"config", "convert", at("ipvs"), "--from", "x"}, app.ExitUsage, "", "exclude each other"},
		{[]string{"config", "convert"}, app.ExitUsage, "", "FILE is missing"},
		{[]string{"config", "defaults"}, 0, "#   iptables.localhostNodePorts: false in v1alpha2, true in v1alpha1\n", ""},
		{[]string{"config", "defaults", "-o", "json"}, 0, `"kind": "KubeProxyConfiguration"`, ""},
		{[]string{"config", "feature-gates", "-o", "json"}, 0, `"kind": "FeatureGateList"`, ""},
		{[]string{"config", "feature-gates", "-o", "yaml"}, 0, "  name: AllowServiceExternalIPs\n", ""},
		{[]string{"config", "explain", "bindAddressHardFail"}, 0, "DEFAULT:  true (false in v1alpha1 and without --config)", ""},
		{[]string{"version"}, 0, "v", ""},
		{[]string{"version", "-o", "json"}, 0, `"gitVersion": "v`, ""},
		{[]string{"version", "-o", "yaml"}, 0, "\ngitVersion: v", ""},
		{[]string{"--logging-format=json", "--proxy-mode=ipvs"}, app.ExitFailure, "", `"msg":"Invalid configuration"`},
		{[]string{"--config", at("json")}, app.ExitFailure, "", `"msg":"Invalid configuration","file":"` + at("json") + `","line":3,"field":"mode","detail":"Unsupported value`},
		{[]string{"--config", at("two")}, app.ExitFailure, "", at("two") + ":4: mode: Invalid value: \"ipvs\""},
		{[]string{"--config", at("two")}, app.ExitFailure, "", at("two") + ":3: syncPeriod: want a duration"},
		{[]string{"--no-such"}, app.ExitUsage, "", "unknown flag: --no-such"},
		{[]string{"--udp-timeout=1s"}, app.ExitUsage, "", "unknown flag: --udp-timeout"},
		{[]string{"--oom-score-adj=x"}, app.ExitUsage, "", "invalid argument"},
		{[]string{"config", "convert", "--from", "x", "--to", "v2"}, app.ExitUsage, "", `version "v2" is not served`},
		{[]string{"--config", at("ipvs")}, app.ExitFailure, "", at("ipvs") + ":3: mode: Invalid value: \"ipvs\": this proxy has no ipvs backend"},
		{[]string{"--proxy-mode=ipvs"}, app.ExitFailure, "", "error: --proxy-mode: Invalid value: \"ipvs\""},
		{[]string{"--config", at("bad"), "--write-config-to", at("target")}, app.ExitFailure, "", at("bad") + ":1: is not YAML"},
		{[]string{"--config", directory}, app.ExitFailure, "", directory + ": is a directory"},
		{[]string{"--config", at("fifo")}, app.ExitFailure, "", at("fifo") + " is a pipe that nothing was written to; start the writer first"},
		{[]string{"--config", "/dev/zero"}, app.ExitFailure, "", "/dev/zero is not a regular file but a device"},
		{[]string{"--write-config-to", at("fifo")}, app.ExitFailure, "", at("fifo") + " is a pipe that no program reads; start its reader first"},
		{[]string{"config", "validate", at("fifo")}, app.ExitFailure, "", at("fifo") + " is a pipe that nothing was written to"},
		{[]string{"analyze", "--manifests", at("fifo")}, 2, "", at("fifo") + " is a pipe that nothing was written to"},
		{[]string{"--oom-score-adj=9999", "--write-config-to", at("target")}, app.ExitFailure, "", "error: --oom-score-adj: "},
		{[]string{"--manifests=x", "--master=y"}, app.ExitUsage, "", "exclude each other"},
		{[]string{"--healthz-port=0", "--write-config-to=-"}, 0, "healthzBindAddress: \"\"\n", "warning: --healthz-port is deprecated: use --healthz-bind-address"},
		{[]string{"--config", at("odd"), "--masquerade-all", "--write-config-to=/dev/stdout"}, 0, "masqueradeAll: false\n", "ignored because --config is given: --masquerade-all"},
	}
	for _, tt := range tests {
		code, out, errs := program(t, tt.args...)
		if tt.args[0] == "--version=v1.37.2-x" {
			tt.code = code // --version=NAME depends on how the binary was built; it only must not start the proxy
		}
		if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.errs) {
			t.Errorf("%q: exit code %d, want %d, output and errors:\n%.600s\n%.600s", tt.args, code, tt.code, out, errs)
		}
	}
	if data, err := os.ReadFile(at("target")); err != nil || string(data) != "precious" {
		t.Errorf("the target holds %q, %v", data, err)
	}
}

// TestExternalIPsGuide checks that the configuration in docs/external-ips.md is valid, and enables the feature gate.
func TestExternalIPsGuide(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "external-ips.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, block := range strings.Split(string(text), "```yaml\n") {
		block, _, _ = strings.Cut(block, "```")
		if i == 0 || !strings.Contains(block, "kind: KubeProxyConfiguration") {
			continue
		}
		found++
		name := filepath.Join(files(t, map[string]string{"config": block}), "config")
		opts := app.NewOptions()
		opts.ConfigFile = name
		loaded, err := opts.LoadFile(newCommand().Flags())
		if err != nil || !loaded.Features.Gate.Enabled(features.AllowServiceExternalIPs) || len(loaded.Warnings) != 1 {
			t.Errorf("the guide's configuration: %v, %+v", err, loaded)
		}
	}
	if found != 1 {
		t.Errorf("the guide has %d configurations, want 1", found)
	}
}
