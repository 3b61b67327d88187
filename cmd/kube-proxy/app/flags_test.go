package app

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// flagRow is what a flag must be: its default, a value to try, and how that shows in a file of v1alpha2. A flag that
// sets no field has no shows.
type flagRow struct{ def, try, shows string }

func flagRows() map[string]flagRow {
	return map[string]flagRow{
		"config": {def: ""}, "write-config-to": {def: ""}, "cleanup": {def: "false"}, "init-only": {def: "false"},
		"manifests": {def: ""}, "relist-guard": {def: "true"}, "startup-taint": {def: ""}, "dataplane-canary": {def: "none"}, "connection-metrics": {def: "none"}, "connection-counters": {def: "auto"}, "master": {def: ""}, "help": {def: "false"}, "version": {def: "false"},
		"boot-id-file": {def: ""}, "machine-id-file": {def: ""},

		"feature-gates":                     {"", "AllAlpha=true", "true"},
		"kubeconfig":                        {"", "/k", "/k"},
		"kube-api-content-type":             {"application/vnd.kubernetes.protobuf", "application/json", "application/json"},
		"kube-api-burst":                    {"10", "11", "11"},
		"kube-api-qps":                      {"5", "5.5", "5.5"},
		"hostname-override":                 {"", "n", "n"},
		"bind-address":                      {"0.0.0.0", "10.0.0.1", "[10.0.0.1]"},
		"healthz-bind-address":              {"0.0.0.0:10256", "10.0.0.1", "10.0.0.1:10256"},
		"metrics-bind-address":              {"127.0.0.1:10249", "[::]:9", "[::]:9"},
		"bind-address-hard-fail":            {"false", "true", "true"},
		"profiling":                         {"false", "true", "true"},
		"show-hidden-metrics-for-version":   {"", "1.36", "1.36"},
		"proxy-mode":                        {"", "nftables", "nftables"},
		"iptables-masquerade-bit":           {"14", "3", "3"},
		"masquerade-all":                    {"false", "true", "true"},
		"iptables-localhost-nodeports":      {"true", "false", "false"},
		"iptables-sync-period":              {"30s", "1m", "1m0s"},
		"iptables-min-sync-period":          {"1s", "0", "0s"},
		"ipvs-sync-period":                  {"30s", "1m", "1m0s"},
		"ipvs-min-sync-period":              {"1s", "2s", "2s"},
		"ipvs-scheduler":                    {"", "rr", "rr"},
		"ipvs-exclude-cidrs":                {"[]", "10.0.0.0/8", "[10.0.0.0/8]"},
		"ipvs-strict-arp":                   {"false", "true", "true"},
		"ipvs-tcp-timeout":                  {"0s", "1s", "1s"},
		"ipvs-tcpfin-timeout":               {"0s", "1s", "1s"},
		"ipvs-udp-timeout":                  {"0s", "1s", "1s"},
		"detect-local-mode":                 {"", "NodeCIDR", "NodeCIDR"},
		"pod-bridge-interface":              {"", "br0", "br0"},
		"pod-interface-name-prefix":         {"", "veth", "veth"},
		"cluster-cidr":                      {"", "10.0.0.0/8,fd00::/8", "[10.0.0.0/8 fd00::/8]"},
		"nodeport-addresses":                {"[]", "primary,10.0.0.0/8", "[primary 10.0.0.0/8]"},
		"oom-score-adj":                     {"-999", "5", "5"},
		"conntrack-max-per-core":            {"32768", "0", "0"},
		"conntrack-min":                     {"131072", "1", "1"},
		"conntrack-tcp-timeout-established": {"24h0m0s", "0", "0s"},
		"conntrack-tcp-timeout-close-wait":  {"1h0m0s", "1s", "1s"},
		"conntrack-tcp-be-liberal":          {"false", "true", "true"},
		"conntrack-udp-timeout":             {"0s", "1s", "1s"},
		"conntrack-udp-timeout-stream":      {"0s", "1s", "1s"},
		"config-sync-period":                {"15m0s", "1m", "1m0s"},
		"healthz-port":                      {"10256", "7", "0.0.0.0:7"},
		"metrics-port":                      {"10249", "7", "127.0.0.1:7"},

		"logging-format":            {"text", "json", "json"},
		"log-flush-frequency":       {"5s", "1s", "1s"},
		"v":                         {"0", "4", "4"},
		"vmodule":                   {"", "a=1", "[map[filePattern:a verbosity:1]]"},
		"log-text-split-stream":     {"false", "true", "true"},
		"log-text-info-buffer-size": {"0", "1Ki", "1Ki"},
		"log-json-split-stream":     {"false", "true", "true"},
		"log-json-info-buffer-size": {"0", "1Ki", "1Ki"},
	}
}

// TestFlags checks that the flags are exactly those of the table, with their defaults, and that each sets its field and no
// other one.
func TestFlags(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has flags of its own beside these")
	}
	rows := flagRows()
	_, flags := parse(t)
	plain := leaves(t, configOf(t))
	flags.VisitAll(func(f *pflag.Flag) {
		row, ok := rows[f.Name]
		if !ok {
			t.Errorf("--%s is not in the table", f.Name)
			return
		}
		delete(rows, f.Name)
		if f.DefValue != row.def {
			t.Errorf("--%s: default is %q, want %q", f.Name, f.DefValue, row.def)
		}
		field := FieldOf(f)
		if marked := strings.Contains(f.Usage, "Ignored with --config."); marked != (field != "" && f.Name != HostnameFlag && !strings.HasPrefix(field, "logging.")) {
			t.Errorf("--%s: the help says that it is ignored with --config: %t", f.Name, marked)
		}
		if row.shows == "" {
			if field != "" {
				t.Errorf("--%s: no row says how %s shows", f.Name, field)
			}
			return
		}
		args := []string{"--" + f.Name + "=" + row.try}
		if strings.HasPrefix(f.Name, "ipvs-") && strings.HasSuffix(f.Name, "sync-period") {
			args = append(args, "--proxy-mode=ipvs")
		}
		changed := leaves(t, configOf(t, args...))
		for path := range plain {
			if _, there := changed[path]; !there {
				t.Errorf("--%s removes %s", f.Name, path)
			}
		}
		for path, value := range changed {
			switch at := path == field || strings.HasPrefix(path, field+"."); {
			case at && value != row.shows:
				t.Errorf("--%s: %s is %q, want %q", f.Name, path, value, row.shows)
			case !at && value != plain[path] && (path != "mode" || len(args) <= 1) && path != "ipvs.masqueradeBit":
				t.Errorf("--%s changes %s to %q", f.Name, path, value)
			}
		}
	})
	for name := range rows {
		t.Errorf("there is no --%s", name)
	}
}

// configOf returns the configuration of a command line, which is not validated.
func configOf(t *testing.T, args ...string) *config.KubeProxyConfiguration {
	t.Helper()
	opts, flags := parse(t, args...)
	return opts.flags.Config(flags.Changed)
}

// leaves returns every value of a configuration as it is written in v1alpha2, by its path.
func leaves(t *testing.T, cfg *config.KubeProxyConfiguration) map[string]string {
	t.Helper()
	data, err := config.Encode(cfg, config.Version)
	if err != nil {
		t.Fatal(err)
	}
	tree := map[string]any{}
	if err := sigsyaml.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	var visit func(prefix string, section map[string]any)
	visit = func(prefix string, section map[string]any) {
		for name, value := range section {
			if inner, ok := value.(map[string]any); ok {
				visit(prefix+name+".", inner)
			} else {
				all[prefix+name] = fmt.Sprint(value)
			}
		}
	}
	visit("", tree)
	return all
}

// TestFlagsInConcert checks flags that set several fields, and fields that several flags set.
func TestFlagsInConcert(t *testing.T) {
	tests := []struct {
		args []string
		want map[string]string
	}{
		{[]string{"--proxy-mode=nftables", "--iptables-sync-period=1m", "--masquerade-all", "--iptables-masquerade-bit=3"},
			map[string]string{"syncPeriod": "1m0s", "linux.masqueradeAll": "true", "nftables.masqueradeBit": "14", "ipvs.masqueradeBit": "3"}},
		{[]string{"--proxy-mode=ipvs", "--iptables-sync-period=1m"}, map[string]string{"syncPeriod": "30s"}},
		{[]string{"--bind-address=::"}, map[string]string{"nodeIPOverride": "", "healthzBindAddress": "[::]:10256", "metricsBindAddress": "[::1]:10249"}},
		{[]string{"--bind-address=fd00::1", "--healthz-bind-address=0.0.0.0:1"}, map[string]string{"nodeIPOverride": "[fd00::1]", "healthzBindAddress": "0.0.0.0:1"}},
		{[]string{"--healthz-port=0"}, map[string]string{"healthzBindAddress": ""}},
		{[]string{"--metrics-port=0"}, map[string]string{"metricsBindAddress": ""}},
		{[]string{"--healthz-bind-address="}, map[string]string{"healthzBindAddress": ""}},
		{[]string{"--metrics-bind-address="}, map[string]string{"metricsBindAddress": "127.0.0.1:10249"}},
		{[]string{"--healthz-bind-address=10.0.0.1", "--healthz-port=5"}, map[string]string{"healthzBindAddress": "10.0.0.1:5"}},
		{[]string{"--kube-api-qps=0", "--kube-api-burst=0", "--kube-api-content-type="},
			map[string]string{"clientConnection.qps": "5", "clientConnection.burst": "10", "clientConnection.contentType": "application/vnd.kubernetes.protobuf"}},
		{[]string{"--proxy_mode=nftables"}, map[string]string{"mode": "nftables"}},
	}
	for _, tt := range tests {
		got := leaves(t, configOf(t, tt.args...))
		for path, want := range tt.want {
			if got[path] != want {
				t.Errorf("%v: %s is %q, want %q", tt.args, path, got[path], want)
			}
		}
	}
}

// TestPrecedence checks which flags count besides --config, and that a warning names those that are ignored.
func TestPrecedence(t *testing.T) {
	name := filepath.Join(t.TempDir(), "config")
	content := "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\nhostnameOverride: file\n" +
		"logging: {verbosity: 1, flushFrequency: 2s, vmodule: [{filePattern: f, verbosity: 9}]}\nlinux: {oomScoreAdj: 7}\n"
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		leaves  map[string]string
		warning string
	}{
		"": {leaves: map[string]string{"hostnameOverride": "file", "logging.verbosity": "1", "logging.flushFrequency": "2s",
			"logging.vmodule": "[map[filePattern:f verbosity:9]]", "linux.oomScoreAdj": "7"}},
		"--hostname-override=flag -v=5 --master=x": {leaves: map[string]string{"hostnameOverride": "flag", "logging.verbosity": "5", "logging.flushFrequency": "2s"}},
		"--vmodule=a=1 --logging-format=text":      {leaves: map[string]string{"logging.verbosity": "1", "logging.vmodule": "[map[filePattern:a verbosity:1]]"}},
		"--oom-score-adj=5 --cluster-cidr=10.0.0.0/8 --metrics-port=1": {leaves: map[string]string{"linux.oomScoreAdj": "7", "detectLocal.clusterCIDRs": ""},
			warning: "--metrics-port is deprecated: use --metrics-bind-address\nignored because --config is given: --cluster-cidr, --metrics-port, --oom-score-adj; write them into " + name + " instead"},
	} {
		got, err := load(t, append(strings.Fields(args), "--config="+name)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		all := leaves(t, got.Config)
		for path, value := range want.leaves {
			if all[path] != value {
				t.Errorf("%s: %s is %q, want %q", args, path, all[path], value)
			}
		}
		if warnings := strings.Join(got.Warnings, "\n"); warnings != want.warning {
			t.Errorf("%s: warnings are %q, want %q", args, warnings, want.warning)
		}
	}
}

// TestErrorsNameFlags checks that one error lists all invalid flags by name, always in the same order.
func TestErrorsNameFlags(t *testing.T) {
	args := []string{"--oom-score-adj=4000", "--bind-address=host", "--cluster-cidr=x", "--proxy-mode=userspace", "--healthz-port=70000",
		"--ipvs-min-sync-period=1s", "--iptables-min-sync-period=1h", "--feature-gates=NoSuchC=true,NoSuchB=true,NoSuchA=true", "--logging-format=xml"}
	_, err := load(t, args...)
	if err == nil {
		t.Fatal("accepted")
	}
	for range 20 {
		if _, again := load(t, args...); again == nil || again.Error() != err.Error() {
			t.Fatalf("once the error is\n%v\nand then\n%v", err, again)
		}
	}
	got := strings.Split(err.Error(), "\n")
	for _, flag := range []string{"--oom-score-adj", "--bind-address", "--cluster-cidr", "--proxy-mode", "--healthz-port", "--iptables-min-sync-period", "--feature-gates=NoSuchA", "--logging-format"} {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, flag+": ") }) {
			t.Errorf("%s is not named", flag)
		}
	}
	if t.Failed() {
		t.Logf("the error is:\n%v", err)
	}
}

// TestNodeName checks where the node's name comes from.
func TestNodeName(t *testing.T) {
	host := func() (string, error) { return "Host.Example ", nil }
	for override, want := range maps.All(map[string]string{"": "host.example", " Node-1\n": "node-1"}) {
		if got, err := nodeName(override, host); got != want || err != nil {
			t.Errorf("%q: got %q, %v", override, got, err)
		}
	}
	if _, err := nodeName("  ", host); err == nil {
		t.Error("a blank name is accepted")
	}
	if _, err := nodeName("", func() (string, error) { return "", os.ErrPermission }); err == nil {
		t.Error("a host without a name is accepted")
	}
}

// TestGatesInForce checks that /flagz shows for every gate whether it is on, also if a file sets it.
func TestGatesInForce(t *testing.T) {
	opts := NewOptions()
	opts.ConfigFile = filepath.Join(t.TempDir(), "config")
	kubeproxy.MustWrite(opts.ConfigFile, kubeproxy.LatestHead+"mode: nftables\nfeatureGates: {AllowServiceExternalIPs: true}\n")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("feature-gates", "", "")
	loaded, err := opts.load(flags)
	if err != nil {
		t.Fatal(err)
	}
	page := opts.runOptions(loaded, flags).flags["feature-gates"]
	for _, gate := range features.Describe() {
		inForce := fmt.Sprintf("%s=%t", gate.Name, gate.Default || gate.Name == "AllowServiceExternalIPs")
		if !slices.Contains(strings.Split(page, ","), inForce) {
			t.Errorf("no %q in %s", inForce, page)
		}
	}
}
