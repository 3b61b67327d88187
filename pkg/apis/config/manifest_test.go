package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// configMap is the output of "kubectl get configmap kube-proxy -o yaml".
const configMap = `apiVersion: v1
data:
  config.conf: |-
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    mode: %s
  kubeconfig.conf: |-
    apiVersion: v1
    kind: Config
kind: ConfigMap
metadata:
  name: kube-proxy
  namespace: kube-system
`

func indented(text string) string {
	return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

// TestReadManifest checks that a configuration is found in a ConfigMap and a List, with the lines of the file.
func TestReadManifest(t *testing.T) {
	good, bad := fmt.Sprintf(configMap, "nftables"), fmt.Sprintf(configMap, "userspace")
	other := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {a: b}\n"
	list := "apiVersion: v1\nkind: List\nitems:\n"
	quoted := "apiVersion: v1\nkind: ConfigMap\ndata:\n  config: \"kind: KubeProxyConfiguration\\napiVersion: kubeproxy.config.k8s.io/v1alpha1\\nmode: [ \\n\"\n"
	for name, test := range map[string]struct {
		in   string
		mode string
		err  string
	}{
		"a configuration":       {in: oldHead + "mode: nftables\n", mode: "nftables"},
		"a ConfigMap":           {in: good, mode: "nftables"},
		"JSON":                  {in: `{"kind": "ConfigMap", "apiVersion": "v1", "data": {"config.conf": "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nmode: nftables"}}`, mode: "nftables"},
		"a List":                {in: list + indented(other) + indented(good), mode: "nftables"},
		"kubectl kustomize":     {in: other + "---\n" + good + "---\nkind: DaemonSet\n", mode: "nftables"},
		"two documents":         {in: good + "---\n" + bad, err: "contains 2 configurations, want one: kube-system/kube-proxy config.conf (line 3), kube-system/kube-proxy config.conf (line 17)"},
		"one outside":           {in: oldHead + "---\n" + good, err: "a second document begins here"},
		"no ConfigMap":          {in: "kind: DaemonSet\n---\nkind: Role\n", err: "a second document begins here"},
		"second does not parse": {in: other + "---\n" + strings.Replace(good, "nftables", "[", 1), err: "<stdin>:11: is not YAML"},
		"a bad value":           {in: bad, mode: "userspace"},
		"two of them":           {in: list + indented(good) + indented(bad), err: "contains 2 configurations, want one: kube-system/kube-proxy config.conf (line 6), kube-system/kube-proxy config.conf (line 19)"},
		"none":                  {in: other, err: "no ConfigMap in it contains a KubeProxyConfiguration"},
		"does not parse":        {in: strings.Replace(good, "nftables", "[", 1), err: "<stdin>:6: is not YAML"},
		"quoted, not parsable":  {in: quoted, err: `<stdin>, data["config"]:3: is not YAML`},
	} {
		file, err := ReadManifest("-", strings.NewReader(test.in))
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v, want %s", name, err, test.err)
			}
			continue
		}
		if err != nil || string(file.Config.Mode) != test.mode {
			t.Errorf("%s: %v, want mode %s", name, err, test.mode)
			continue
		}
		if before, _, _ := strings.Cut(test.in, "mode: "); test.mode == "userspace" && file.doc.LineOf("mode") != 1+strings.Count(before, "\n") {
			t.Errorf("%s: mode is in line %d", name, file.doc.LineOf("mode"))
		}
	}
	jsonMap := `{"kind": "ConfigMap", "apiVersion": "v1", "data": {"config.conf": "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nmode: nftables"}}`
	named := filepath.Join(t.TempDir(), "cm.json")
	if err := os.WriteFile(named, []byte(jsonMap), 0o600); err != nil {
		t.Fatal(err)
	}
	if file, err := ReadManifest(named, nil); err != nil || file.Config.Mode != "nftables" {
		t.Errorf("a ConfigMap in a file with a name of JSON: %v", err)
	}
	if _, err := ParseFile("f", []byte(good)); err == nil || !strings.Contains(err.Error(), `f:10: kind: a ConfigMap is not a configuration; "kube-proxy config convert" extracts the one in it`) {
		t.Errorf("a ConfigMap as --config: %v", err)
	}
}

// TestAllErrorsAtOnce checks that values that cannot be decoded hide no other errors, and cause no further ones.
func TestAllErrorsAtOnce(t *testing.T) {
	file, err := ParseFile("f", []byte(oldHead+"iptables: {syncPeriod: 60, minSyncPeriod: 45s}\nportRange: x\nfoo: 1\nmode: [ipvs]\nnodePortAddresses: [{a: b}, x]\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(file.Check(nil))
	for _, want := range []string{"f:3: iptables.syncPeriod: want a duration", "f:4: portRange: Invalid value", "f:5: foo: unknown field", "f:6: mode: want a string", "f:7: nodePortAddresses[0]: want a string"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if file.Config.MinSyncPeriod.Duration.String() != "45s" || len(file.Config.NodePortAddresses) != 2 {
		t.Errorf("the rest is %+v", file.Config)
	}
}
