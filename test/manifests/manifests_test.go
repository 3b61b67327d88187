//go:build linux

package manifests

import (
	"bytes"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

const (
	overlays = "../../build/manifests/overlays"
	chart    = "../../build/charts/kube-proxy"
	binary   = "../../bin/kube-proxy"
)

// variants are the values of the chart that give the objects of an overlay.
var variants = map[string]string{
	"iptables":   ``,
	"nftables":   `config: {mode: nftables}`,
	"canary":     `{canary: true, config: {mode: nftables}}`,
	"standalone": `standalone: {enabled: true}`,
}

// needed are the values that every cluster has to set, with the examples of the overlays.
const needed = `
apiServer: https://control-plane.example:6443
config: {detectLocal: {clusterCIDRs: [10.244.0.0/16]}}
`

// object is a Kubernetes object.
type object = map[string]any

// parse reads YAML.
func parse(t *testing.T, text string) object {
	t.Helper()
	o := object{}
	if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// kustomize renders a folder: its objects by kind and name.
func kustomize(t *testing.T, files filesys.FileSystem, folder string) map[string]object {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, folder)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for _, resource := range made.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		add(t, all, string(text))
	}
	return all
}

// helm renders the chart with values, where later ones take precedence, and returns the files by name.
func helm(texts ...string) (files map[string]string, err error) {
	c, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	values := object{}
	for _, text := range slices.Backward(texts) { // the values of the later text win
		more := object{}
		if err := yaml.UnmarshalStrict([]byte(text), &more); err != nil {
			return nil, err
		}
		util.CoalesceTables(values, more)
	}
	release := common.ReleaseOptions{Name: "kube-proxy", Namespace: "kube-system", IsInstall: true}
	rendering, err := util.ToRenderValues(c, values, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, rendering)
}

// objects renders the chart and returns its objects.
func objects(t *testing.T, texts ...string) map[string]object {
	t.Helper()
	files, err := helm(texts...)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		documents, _ := userfile.Split(name, []byte(text)) // no errors in YAML
		for _, document := range documents {
			add(t, all, string(document.Text))
		}
	}
	return all
}

// add adds the object in a text, if there is one.
func add(t *testing.T, all map[string]object, text string) {
	t.Helper()
	o := parse(t, text)
	if len(o) == 0 {
		return
	}
	u := unstructured.Unstructured{Object: o}
	key := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
	if all[key] != nil {
		t.Errorf("%s is there twice", key)
	}
	all[key] = o
}

// comparable removes what only Helm's objects have, and turns the files in ConfigMaps into the objects that they are.
func comparableObjects(t *testing.T, all map[string]object) map[string]object {
	t.Helper()
	for _, o := range all {
		u := unstructured.Unstructured{Object: o}
		labels := u.GetLabels()
		for _, label := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"} {
			delete(labels, label)
		}
		u.SetLabels(labels)
		unstructured.RemoveNestedField(o, "spec", "template", "metadata", "annotations", "checksum/config")
		if files, ok := o["data"].(object); ok {
			for name, text := range files {
				files[name] = parse(t, text.(string))
			}
		}
	}
	return all
}

// TestChartEqualsOverlays renders both and compares the objects.
func TestChartEqualsOverlays(t *testing.T) {
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			want := comparableObjects(t, kustomize(t, filesys.MakeFsOnDisk(), filepath.Join(overlays, name)))
			got := comparableObjects(t, objects(t, needed, values))
			if len(want) == 0 {
				t.Error("the overlay is empty")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the overlay (-) and the chart (+) differ:\n%s", diff)
			}
		})
	}
}

// withComponent renders a component, with more lines of the kustomization.
func withComponent(t *testing.T, name, more string) map[string]object {
	t.Helper()
	folder := t.TempDir()
	manifests, err := filepath.Abs("../../build/manifests")
	if err != nil {
		t.Fatal(err)
	}
	if manifests, err = filepath.Rel(folder, manifests); err != nil {
		t.Fatal(err)
	}
	files := filesys.MakeFsOnDisk()
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\ncomponents: [" + filepath.Join(manifests, "components", name) + "]\n" +
		strings.ReplaceAll(more, "MANIFESTS", manifests)
	if err := files.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text)); err != nil {
		t.Fatal(err)
	}
	return comparableObjects(t, kustomize(t, files, folder))
}

// TestStartupTaint compares the overlays with the component and the chart with the value.
func TestStartupTaint(t *testing.T) {
	for _, name := range []string{"nftables", "canary"} {
		want := withComponent(t, "startup-taint", "resources: [MANIFESTS/overlays/"+name+"]\n")
		got := comparableObjects(t, objects(t, needed, variants[name], "startupTaint: kube-proxy/startup:NoSchedule"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the component (-) and the chart (+) differ:\n%s", name, diff)
		}
		without := comparableObjects(t, objects(t, needed, variants[name]))
		if cmp.Equal(want, without) {
			t.Errorf("%s: the component changes nothing", name)
		}
	}
}

// TestPodMonitor compares the component's object with the chart's.
func TestPodMonitor(t *testing.T) {
	const key = "PodMonitor kube-system/kube-proxy"
	want := withComponent(t, "pod-monitor",
		"labels: [{pairs: {app.kubernetes.io/name: kube-proxy, app.kubernetes.io/component: service-proxy, app.kubernetes.io/part-of: kubernetes}}]\n")
	got := comparableObjects(t, objects(t, needed, `{metrics: {podMonitor: {enabled: true}}, config: {metricsBindAddress: "0.0.0.0:10249"}}`))
	if want[key] == nil {
		t.Fatalf("the component has %v", slices.Collect(maps.Keys(want)))
	}
	if diff := cmp.Diff(want[key], got[key]); diff != "" {
		t.Errorf("the component (-) and the chart (+) differ:\n%s", diff)
	}
}

// TestConfigs checks that kube-proxy accepts the configuration in every ConfigMap, with no warning.
func TestConfigs(t *testing.T) {
	checked := 0
	for name, values := range variants {
		for key, o := range objects(t, needed, values) {
			if !strings.HasPrefix(key, "ConfigMap ") {
				continue
			}
			checked++
			text, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			validate := exec.Command(binary, "config", "validate", "--strict", "-")
			validate.Stdin = bytes.NewReader(text)
			if out, err := validate.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
	}
	if checked != 3 {
		t.Errorf("checked %d configurations, want 3", checked)
	}
}

// TestValues checks that wrong values give an error that names the value and what is wrong.
func TestValues(t *testing.T) {
	for _, test := range []struct{ name, values, want string }{
		{"no API server", `apiServer: ""`, "apiServer is not set"},
		{"API server without scheme", `apiServer: "10.0.0.1:6443"`, "at '/apiServer'"},
		{"no pod ranges", `config: {detectLocal: {clusterCIDRs: []}}`, "config.detectLocal.clusterCIDRs is not set"},
		{"unknown mode", `config: {mode: ipvs}`, "at '/config/mode': value must be one of 'iptables', 'nftables'"},
		{"unknown field", `config: {clusterCIDR: 10.244.0.0/16}`, "additional properties 'clusterCIDR' not allowed"},
		{"wrong type in a section", `config: {linux: {conntrack: {maxPerCore: many}}}`, "at '/config/linux/conntrack/maxPerCore'"},
		{"unknown value", `imagee: {}`, "additional properties 'imagee' not allowed"},
		{"digest", `image: {digest: abc}`, "at '/image/digest'"},
		{"tag as a number", `image: {tag: 1.36}`, "at '/image/tag': got number, want string"},
		{"resources", `resources: {limit: {}}`, "additional properties 'limit' not allowed"},
		{"monitor of loopback", `metrics: {podMonitor: {enabled: true}}`, "metrics.podMonitor.enabled needs config.metricsBindAddress"},
		{"address as a flag", `extraArgs: [-v=2, --healthz-bind-address=127.0.0.1]`, "extraArgs has --healthz-bind-address=127.0.0.1: set config.healthzBindAddress"},
		{"port as a flag", `extraArgs: [--metrics_port=7]`, "extraArgs has --metrics_port=7: set config.healthzBindAddress or config.metricsBindAddress"},
		{"canary without API server", `{canary: true, standalone: {enabled: true}}`, "exclude each other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			files, err := helm(needed, test.values)
			if err == nil {
				t.Fatalf("no error, but %d files", len(files))
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want one with %q", err, test.want)
			}
		})
	}
}

// TestEveryValue sets each value to something else than its default and looks for it in the objects.
func TestEveryValue(t *testing.T) {
	for _, test := range []struct{ values, kind, want string }{
		{`apiServer: https://10.1.2.3:6443`, "ConfigMap", "server: https://10.1.2.3:6443"},
		{`config: {linux: {conntrack: {maxPerCore: 0}}}`, "ConfigMap", "maxPerCore: 0"},
		{`config: {healthzBindAddress: "0.0.0.0:10356"}`, "DaemonSet", "port: 10356"},
		{`config: {metricsBindAddress: "0.0.0.0:10349"}`, "Service", "targetPort: 10349"},
		{`image: {repository: registry.example/p, tag: v1.2.3}`, "DaemonSet", "image: registry.example/p:v1.2.3"},
		{`image: {digest: "sha256:` + strings.Repeat("ab", 32) + `"}`, "DaemonSet", "image: localhost/kube-proxy@sha256:abab"},
		{`image: {pullPolicy: Always}`, "DaemonSet", "imagePullPolicy: Always"},
		{`imagePullSecrets: [{name: key}]`, "DaemonSet", "imagePullSecrets:\n      - name: key"},
		{`nameOverride: proxy`, "ClusterRoleBinding", "name: proxy\nroleRef"},
		{`startupTaint: "a=b:NoExecute"`, "DaemonSet", "- --startup-taint=a=b:NoExecute"},
		{`serviceAccount: {name: other}`, "DaemonSet", "serviceAccountName: other"},
		{`serviceAccount: {annotations: {a: b}}`, "ServiceAccount", "a: b"},
		{`metrics: {podMonitor: {enabled: true, labels: {release: p}}}` + "\n" + `config: {metricsBindAddress: "10.0.0.1:1"}`, "PodMonitor", "release: p"},
		{`resources: {limits: {memory: 2Gi}}`, "DaemonSet", "memory: 2Gi"},
		{`updateStrategy: {type: OnDelete, rollingUpdate: null}`, "DaemonSet", "type: OnDelete"},
		{`priorityClassName: p`, "DaemonSet", "priorityClassName: p"},
		{`nodeSelector: {pool: a}`, "DaemonSet", "pool: a"},
		{`tolerations: [{key: a, operator: Exists}]`, "DaemonSet", "key: a"},
		{`affinity: {podAffinity: {}}`, "DaemonSet", "affinity:\n        podAffinity: {}"},
		{`podAnnotations: {a: b}`, "DaemonSet", "a: b"},
		{`podLabels: {team: net}`, "DaemonSet", "team: net"},
		{`extraArgs: [-v=4]`, "DaemonSet", "- -v=4"},
		{`extraEnv: [{name: GOMAXPROCS, value: "2"}]`, "DaemonSet", "name: GOMAXPROCS"},
		{`extraVolumes: [{name: x, emptyDir: {}}]`, "DaemonSet", "- emptyDir: {}\n        name: x"},
		{`extraVolumeMounts: [{name: x, mountPath: /x}]`, "DaemonSet", "mountPath: /x"},
		{`standalone: {enabled: true, manifests: /srv/objects}`, "Pod", "path: /srv/objects"},
		{`{standalone: {enabled: true}, config: {healthzBindAddress: "10.0.0.5"}}`, "Pod", "--healthz-bind-address=10.0.0.5:10256\n"},
		{`{standalone: {enabled: true}, config: {metricsBindAddress: "0.0.0.0"}}`, "Pod", "--metrics-bind-address=0.0.0.0:10249\n"},
		{`{standalone: {enabled: true}, config: {metricsBindAddress: ""}}`, "Pod", "--metrics-port=0\n"},
	} {
		t.Run(test.values, func(t *testing.T) {
			for key, o := range objects(t, needed, test.values) {
				if !strings.HasPrefix(key, test.kind+" ") {
					continue
				}
				text, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(text), test.want) {
					t.Errorf("%s lacks %q:\n%s", key, test.want, text)
				}
				return
			}
			t.Errorf("no %s", test.kind)
		})
	}
	for _, test := range []struct{ values, kind string }{
		{`serviceAccount: {create: false}`, "ServiceAccount"},
		{`rbac: {create: false}`, "ClusterRole"},
		{`metrics: {service: {enabled: false}}`, "Service"},
		{`canary: true`, "Service"},
	} {
		for key := range objects(t, needed, test.values) {
			if strings.HasPrefix(key, test.kind+" ") {
				t.Errorf("%s: there is %s", test.values, key)
			}
		}
	}
}

// TestPodsRestart changes what only the ConfigMap has: the DaemonSet changes with it, or else no pod would read it.
func TestPodsRestart(t *testing.T) {
	const daemonSet = "kube-proxy/templates/daemonset.yaml"
	before, err := helm(needed)
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range []string{`apiServer: https://10.1.2.3:6443`, `config: {linux: {conntrack: {maxPerCore: 0}}}`} {
		if after, err := helm(needed, values); err != nil || after[daemonSet] == "" || after[daemonSet] == before[daemonSet] {
			t.Errorf("%s: error %v; the DaemonSet is empty or as before", values, err)
		}
	}
}

// TestNotes checks that the notes name the mode and the DaemonSet.
func TestNotes(t *testing.T) {
	files, err := helm(needed, `{canary: true, config: {mode: nftables}}`)
	if err != nil {
		t.Fatal(err)
	}
	notes := files["kube-proxy/templates/NOTES.txt"]
	for _, want := range []string{"nftables mode", "rollout status daemonset/kube-proxy-canary", "kube-proxy/canary=true", "One node first"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}
