package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

func analyzed(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(append([]string{"analyze"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// sliceOfPlainService is a slice with two ready endpoints.
func sliceOfPlainService(n int) discoveryv1.EndpointSlice {
	endpoint := func(k int) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 200+k, n>>8&255, n&255)}, NodeName: new("n0")}
	}
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", n, "-1"), Labels: map[string]string{
			discoveryv1.LabelServiceName: fmt.Sprint("s", n), discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{endpoint(0), endpoint(1)},
	}
}

// TestAnalyzeLargeCluster finds the one Service of 10,000 whose slice has another port name.
func TestAnalyzeLargeCluster(t *testing.T) {
	s := &apiServer{services: 10_000, nodes: 100, node: plainNode, service: plainService, slice: func(n int) discoveryv1.EndpointSlice {
		slice := sliceOfPlainService(n)
		if n == 9_999 {
			slice.Ports[0].Name = new("web")
		}
		return slice
	}}
	began := time.Now()
	code, out, errs := analyzed("--kubeconfig", s.kubeconfig(t), "-o", "json")
	t.Logf("10,000 Services with 2 endpoints each took %s, and the fake API server's part of it", time.Since(began).Round(time.Millisecond))
	var report struct {
		Kind                            string
		Services, EndpointSlices, Nodes int
		Findings                        []map[string]string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err, errs)
	}
	if code != exitFindings || report.Kind != "Analysis" || report.Services != 10_000 || report.EndpointSlices != 10_000 || report.Nodes != 100 || len(report.Findings) != 2 {
		t.Fatalf("exit code %d, %s%.2000s", code, errs, out)
	}
	f := report.Findings[0]
	if f["hint"] == "" {
		t.Error("a finding without a hint")
	}
	delete(f, "hint")
	if diff := cmp.Diff(map[string]string{"code": "NoSuchPort", "severity": "error", "kind": "Service", "namespace": "default", "name": "s9999",
		"message": `EndpointSlice default/s9999-1 has no port ""/TCP; it has web/TCP: compare the port names of the Service (spec.ports[].name, and a targetPort that is a name) and of the pods' containers`}, f); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnalyzeExitCodes checks what CI can rely on.
func TestAnalyzeExitCodes(t *testing.T) {
	head := "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.1, selector: {a: b}, ports: [{port: 80}]"
	directory := files(t, map[string]string{
		"good.yaml":   "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n",
		"none.yaml":   head + "}\n",
		"port.yaml":   head + "}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [10.0.0.1]}]\n",
		"bad.yaml":    "kind: [\n",
		"escape.yaml": strings.Replace(head, "name: web,", `name: "web\e[2J",`, 1) + "}\n",
		"outside":     kubeproxy.LatestHead + "mode: nftables\ndetectLocalMode: NodeCIDR\n",
		"gate":        kubeproxy.LatestHead + "mode: nftables\nfeatureGates: {AllowServiceExternalIPs: true}\n",
		"external":    head + ", externalIPs: [192.0.2.7]}\n",
	})
	at := func(name string) string { return filepath.Join(directory, name) }
	clean := &apiServer{services: 3, nodes: 1, service: plainService, node: plainNode, slice: sliceOfPlainService}
	forbidden := &apiServer{services: 3, nodes: 1, service: plainService, node: plainNode, slice: sliceOfPlainService, forbidden: "endpointslices"}
	for _, test := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--kubeconfig", clean.kubeconfig(t)}, 0, "Nothing found in 3 Services, 3 EndpointSlices and 1 Node.\n", ""},
		{[]string{"--kubeconfig", clean.kubeconfig(t), "-A"}, 0, "Nothing found in 3 Services, 3 EndpointSlices and 1 Node.\n", ""},
		{[]string{"--kubeconfig", forbidden.kubeconfig(t)}, exitUnreadable, "", "error: analyze: list EndpointSlices: endpointslices is forbidden"},
		{[]string{"--manifests", at("good.yaml")}, 0, "Nothing found in 0 Services and 1 Node.\n", ""},
		{[]string{"--manifests", at("none.yaml")}, exitFindings, "warning    NoEndpoints   Service shop/web   shop/web: connections are rejected: there is no EndpointSlice with the label", ""},
		{[]string{"--manifests", at("none.yaml"), "--fail-on", "error"}, 0, "NoEndpoints", ""},
		{[]string{"--manifests", at("port.yaml"), "--fail-on", "error"}, exitFindings, "error      NoSuchPort    Service shop/web", ""},
		{[]string{"--manifests", at("port.yaml"), "--fail-on", "never"}, 0, "NoSuchPort", ""},
		{[]string{"--manifests", at("port.yaml"), "--skip", "NoSuchPort,NoEndpoints"}, 0, "Nothing found in 1 Service, 1 EndpointSlice and 0 Nodes.\n", ""},
		{[]string{"--manifests", at("port.yaml"), "-n", "other"}, 0, "Nothing found", ""},
		{[]string{"--manifests", at("port.yaml"), "-n", "shop,other"}, exitFindings, "If targetPort is a name, compare it", ""},
		{[]string{"--manifests", at("good.yaml"), "--config", at("outside")}, exitFindings, "NodeWithoutPodCIDR", ""},
		{[]string{"--manifests", at("external"), "--skip", "NoEndpoints"}, exitFindings, "ExternalIPsNotServed", ""},
		{[]string{"--manifests", at("external"), "--skip", "NoEndpoints", "--config", at("gate")}, 0, "Nothing found", ""},
		{[]string{"--manifests", at("external"), "--skip", "NoEndpoints", "--config", at("gate"), "--group", "upgrade"}, exitFindings, "DeprecatedConfiguration", ""},
		{[]string{"--manifests", at("escape.yaml")}, exitFindings, "Service shop/web?[2J", ""},
		{[]string{"--manifests", at("bad.yaml")}, exitUnreadable, "Nothing found", "bad.yaml:1: not YAML: "},
		{[]string{"--manifests", at("good.yaml"), "--context", "x"}, app.ExitUsage, "", "exclude each other"},
		{[]string{"-A", "-n", "x"}, app.ExitUsage, "", "-A and -n exclude each other"},
		{[]string{"--skip", "NoSuch"}, app.ExitUsage, "", `there is no code "NoSuch"`},
		{[]string{"--group", "NoSuch"}, app.ExitUsage, "", `--group "NoSuch" is not one of endpoints, addresses, nodes, upgrade`},
		{[]string{"--fail-on", "bad"}, app.ExitUsage, "", "is not one of never, error, warning, info"},
		{[]string{"-o", "xml"}, app.ExitUsage, "", "table, json, yaml"},
	} {
		code, out, errs := analyzed(test.args...)
		if code != test.code || !strings.Contains(out, test.out) || !strings.Contains(errs, test.errs) || (test.out == "") != (out == "") || (test.errs == "") != (errs == "") {
			t.Errorf("%q: exit code %d, want %d, output and errors:\n%s\n%s", test.args, code, test.code, out, errs)
		}
	}
	_, out, _ := analyzed("--manifests", at("none.yaml"), "-o", "yaml")
	var report map[string]any
	if err := sigsyaml.Unmarshal([]byte(out), &report); err != nil || report["kind"] != "Analysis" {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestOneReader reads one folder with two commands: "service list" has the Services that "analyze" does not report as refused, a pipe
// delays neither, and other kinds are one line.
func TestOneReader(t *testing.T) {
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: 10.96.0.%d, ports: [{port: 80%s}]}\n---\napiVersion: v1\nkind: Pod\n"
	directory := files(t, map[string]string{
		"a.yaml": fmt.Sprintf(service, "good", 1, ""), "b.yaml": fmt.Sprintf(service, "unknown", 2, ", foo: 1"),
		"c.yaml": fmt.Sprintf(service, "port", 3, "000000"), "d.yaml": strings.Replace(fmt.Sprintf(service, "new", 4, ""), "clusterIP: 10.96.0.4,", "", 1),
		"e.yaml": fmt.Sprintf(service, "good", 5, ""), ".f.yaml": fmt.Sprintf(service, "hidden", 6, ""),
	})
	if err := exec.Command("mkfifo", filepath.Join(directory, "g.yaml")).Run(); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := Run([]string{"service", "list", "-A", "--manifests", directory, "--node", "n1", "-o", "json"}, &out, &errs); code != 0 {
		t.Errorf("service list: exit code %d, %s", code, errs.String())
	}
	var list struct{ Items []struct{ Name string } }
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	code, text, said := analyzed("--manifests", directory, "-o", "json")
	var report struct {
		Services int
		Findings []struct{ Code, Name, Message string }
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	refused := map[string]string{}
	for _, f := range report.Findings {
		if f.Code == "RefusedManifest" || f.Code == "InvalidField" {
			refused[f.Name] = strings.TrimPrefix(f.Message, directory+"/")
		}
	}
	if diff := cmp.Diff(map[string]string{"unknown": `b.yaml:4: unknown field "spec.ports[0].foo"`, "port": "spec.ports[0].port: 80000000 is not a port number",
		"new":  "d.yaml:4: spec.clusterIP: is required, because there is no API server to allocate an address; use None for a headless Service",
		"good": "e.yaml: Service default/good is ignored, because a.yaml contains it too; remove it from one of the two"}, refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "good" || report.Services != 4 {
		t.Errorf("service list has %v, analyze counts %d", list.Items, report.Services)
	}
	if code != exitUnreadable || !strings.HasPrefix(said, "passed over 5 Pod (v1)\n") || strings.Count(said, "passed over") != 1 || !strings.Contains(said, "g.yaml is not a regular file but a pipe") {
		t.Errorf("exit code %d, %s", code, said)
	}
}

// TestAnalyzeWithoutServer says what is missing in words of a user, and not in those of a library.
func TestAnalyzeWithoutServer(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	code, _, errs := analyzed()
	if code != exitUnreadable || !strings.Contains(errs, "there is no kubeconfig in ~/.kube/config or $KUBECONFIG, and this is no pod; give --kubeconfig, or --manifests to read files") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	closed := files(t, map[string]string{"k": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"})
	code, _, errs = analyzed("--kubeconfig", filepath.Join(closed, "k"))
	if code != exitUnreadable || !strings.HasSuffix(errs, "analyze: list Nodes: the API server does not answer: dial tcp 127.0.0.1:1: connect: connection refused\n") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
