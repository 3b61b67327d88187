package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/findings"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// apiServer lists Services and Nodes in pages, and answers nothing else.
type apiServer struct {
	services, nodes int
	// service and node make the objects of a number.
	service func(n int) corev1.Service
	node    func(n int) corev1.Node
	// slice makes the EndpointSlice of a Service's number; nil means that there are none.
	slice func(n int) discoveryv1.EndpointSlice
	// forbidden is a resource that may not be listed. There are no ServiceCIDRs, as in older versions of Kubernetes.
	forbidden string

	limits []string
	// peak is the most memory in use at a request for a page, in bytes, after a garbage collection.
	peak uint64
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := filepath.Base(r.URL.Path)
	query := r.URL.Query()
	s.limits = append(s.limits, resource+" "+query.Get("limit"))
	if len(s.limits)%10 == 0 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		s.peak = max(s.peak, now.HeapAlloc)
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet || resource == s.forbidden {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Message: resource + " is forbidden", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
		return
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	total, known := map[string]int{"services": s.services, "nodes": s.nodes, "endpointslices": s.services}[resource]
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	to := min(from+limit, total)
	var page metav1.ListMeta
	if left := int64(total - to); left > 0 {
		page = metav1.ListMeta{Continue: strconv.Itoa(to), RemainingItemCount: &left}
	}
	switch resource {
	case "endpointslices":
		list := discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{Kind: "EndpointSliceList", APIVersion: "discovery.k8s.io/v1"}, ListMeta: page}
		for n := from; n < to && s.slice != nil; n++ {
			list.Items = append(list.Items, s.slice(n))
		}
		_ = json.NewEncoder(w).Encode(list)
		return
	case "nodes":
		list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: page}
		for n := from; n < to; n++ {
			list.Items = append(list.Items, s.node(n))
		}
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{Kind: "ServiceList", APIVersion: "v1"}, ListMeta: page}
	for n := from; n < to; n++ {
		list.Items = append(list.Items, s.service(n))
	}
	_ = json.NewEncoder(w).Encode(list)
}

// kubeconfig writes a kubeconfig for the server and returns its path.
func (s *apiServer) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return filepath.Join(files(t, map[string]string{"kubeconfig": fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", server.URL)}), "kubeconfig")
}

func audited(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(append([]string{"audit"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func plainService(n int) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", n), Annotations: map[string]string{"note": strings.Repeat("x", 500)}},
		Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.%d.%d.%d", 96+n>>16, n>>8&255, n&255),
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func plainNode(n int) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.18.%d.%d", n>>8, n&255)}}}}
}

// TestAuditLargeCluster audits 50,000 Services and 1,000 Nodes with one finding in them: in pages, and without keeping the
// objects. The Services alone are more than 50 MB when decoded.
func TestAuditLargeCluster(t *testing.T) {
	s := &apiServer{services: 50_000, nodes: 1_000, node: plainNode, service: func(n int) corev1.Service {
		service := plainService(n)
		if n == 49_999 {
			service.Spec.ExternalIPs = []string{"172.18.3.5", "10.96.0.7"}
		}
		return service
	}}
	kubeconfig := s.kubeconfig(t)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	code, out, errs := audited("--kubeconfig", kubeconfig, "-o", "json")
	if code != exitFindings || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	var report struct {
		Services, Nodes int
		Findings        []struct{ Code, Name, Message string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Services != s.services || report.Nodes != s.nodes || len(report.Findings) != 3 || report.Findings[0].Name != "s49999" || report.Findings[0].Code != "ExternalIPCapture" {
		t.Errorf("the report is %+v", report)
	}
	if len(s.limits) != 10+100 || s.limits[0] != "nodes 100" || s.limits[109] != "services 500" {
		t.Errorf("%d requests: %v", len(s.limits), s.limits)
	}
	kept := (int64(s.peak) - int64(before.HeapAlloc)) >> 20
	t.Logf("at most %d MiB more in use than before", kept)
	if kept > 32 {
		t.Errorf("%d MiB are kept, want at most 32", kept)
	}
}

// TestAuditExitCodes checks what CI can rely on, and that errors are printed on standard error only.
func TestAuditExitCodes(t *testing.T) {
	directory := files(t, map[string]string{
		"web.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: ports}\nspec: {clusterIP: 10.96.0.2, type: NodePort, ports: [{port: 80, nodePort: 30080}]}\n" +
			"---\napiVersion: apps/v1\nkind: Deployment\n---\napiVersion: apps/v1\nkind: Deployment\n",
		"ipvs": oldHead + "mode: ipvs\n", "nft": kubeproxy.LatestHead + "mode: nftables\n",
		"good.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n",
		"other.txt": "not read",
		"ours":      oldHead + "mode: nftables\nfeatureGates: {AllowServiceExternalIPs: true}\n",
		"fresh":     kubeproxy.LatestHead + "mode: nftables\n",
		"bad":       kubeproxy.LatestHead + "mode: [\n",
	})
	at := func(name string) string { return filepath.Join(directory, name) }
	bad := files(t, map[string]string{"bad.yaml": "kind: [\n"})
	mixed := filepath.Join(files(t, map[string]string{"mixed.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n  spec: {ports: [{port: x}]}\n" +
		"- apiVersion: v1\n  kind: Service\n  metadata: {name: b}\n  spec: {externalIPs: [192.0.2.1], ports: [{port: 80}]}\n"}), "mixed.yaml")
	clean := &apiServer{services: 3, nodes: 1, service: plainService, node: plainNode}
	forbidden := &apiServer{services: 3, nodes: 1, service: plainService, node: plainNode, forbidden: "services"}
	for _, test := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--kubeconfig", clean.kubeconfig(t)}, 0, "Nothing found in 3 Services and 1 Node.\n", ""},
		{[]string{"--kubeconfig", forbidden.kubeconfig(t)}, exitUnreadable, "", "audit: list Services: services is forbidden"},
		{[]string{"--kubeconfig", at("missing")}, exitUnreadable, "", "audit: find the API server"},
		{[]string{"--manifests", directory}, 0, "Nothing found in 2 Services and 0 Nodes.\n", "passed over 2 Deployment (apps/v1)\n"},
		{[]string{"--manifests", at("good.yaml")}, 0, "Nothing found in 1 Service and 0 Nodes.\n", ""},
		{[]string{"--manifests", at("web.yaml"), "--to-mode", "nftables"}, exitFindings, "30080/TCP: iptables mode serves them on every address", "passed over"},
		{[]string{"--manifests", at("web.yaml"), "--to-mode", "nftables", "--config", at("nft")}, 0, "Nothing found", "passed over"},
		{[]string{"--manifests", at("web.yaml"), "--config", at("ipvs")}, exitFindings, "30080/TCP: ipvs mode serves them on every address", "passed over"},
		{[]string{"--manifests", at("good.yaml"), "--config", at("ipvs")}, exitFindings, "3: mode: Invalid value: \"ipvs\": this proxy has no ipvs backend", ""},
		{[]string{"--manifests", at("good.yaml"), "--from", "ipvs"}, exitFindings, "ipvs.scheduler: endpoints are chosen at random instead of in turn", ""},
		{[]string{"--manifests", at("good.yaml"), "--from", "ipvs", "--skip", "SettingWithoutEffect"}, 0, "* The addresses of Services are no longer addresses of the nodes", ""},
		{[]string{"--manifests", at("good.yaml"), "--from", "iptables"}, 0, "Nothing found", ""},
		{[]string{"--manifests", at("good.yaml"), "--to-mode", "nftables"}, 0, "is rejected; iptables mode", ""},
		{[]string{"--to-mode", "ipvs"}, app.ExitUsage, "", "is not one of iptables, nftables"},
		{[]string{"--from", "ebpf"}, app.ExitUsage, "", "is not one of iptables, nftables, ipvs"},
		{[]string{"--manifests", mixed}, exitUnreadable, "192.0.2.1:80/TCP: stop working", "mixed.yaml:7: spec.ports[0].port: string, expected a whole number of int32"},
		{[]string{"--manifests", at("good.yaml"), "-o", "json"}, 0, `"findings": []`, ""},
		{[]string{"--manifests", bad}, exitUnreadable, "Nothing found in 0 Services and 0 Nodes.", "bad.yaml:1: not YAML: "},
		{[]string{"--manifests", at("missing")}, exitUnreadable, "", "no such file"},
		{[]string{"--manifests", t.TempDir()}, exitUnreadable, "", "holds no .yaml, .yml or .json file"},
		{[]string{"--manifests", at("good.yaml"), "--config", at("fresh")}, 0, "Nothing found", ""},
		{[]string{"--manifests", at("good.yaml"), "--config", at("ours")}, exitFindings, "version v1alpha1 is not the latest, v1alpha2", ""},
		{[]string{"--manifests", at("good.yaml"), "--config", at("ours")}, exitFindings, "feature gate AllowServiceExternalIPs is deprecated", ""},
		{[]string{"--manifests", at("good.yaml"), "--config", at("ours"), "--skip", "DeprecatedConfiguration"}, 0, "Nothing found", ""},
		{[]string{"--manifests", at("good.yaml"), "--config", at("bad")}, exitUnreadable, "", "is not YAML"},
		{[]string{"--manifests", directory, "--kubeconfig", "x"}, app.ExitUsage, "", "exclude each other"},
		{[]string{"--skip", "externalips"}, app.ExitUsage, "", `--skip: there is no code "externalips"`},
		{[]string{"-o", "xml"}, app.ExitUsage, "", "is not one of table, json, yaml, manifests"},
		{[]string{"web"}, app.ExitUsage, "", "unknown command"},
	} {
		code, out, errs := audited(test.args...)
		if code != test.code || !strings.Contains(out, test.out) || !strings.Contains(errs, test.errs) || (test.out == "") != (out == "") || (test.errs == "") != (errs == "") {
			t.Errorf("%q: exit code %d, want %d, output and errors:\n%s\n%s", test.args, code, test.code, out, errs)
		}
	}
}

// TestAuditOutputs shows the same findings as a table, as JSON and as manifests.
func TestAuditOutputs(t *testing.T) {
	s := &apiServer{services: 2, nodes: 1, node: plainNode, service: func(n int) corev1.Service {
		service := plainService(n)
		service.Annotations = nil
		if n == 1 {
			service.Spec.ExternalIPs = []string{"192.0.2.10"}
		}
		return service
	}}
	kubeconfig := s.kubeconfig(t)
	code, out, _ := audited("--kubeconfig", kubeconfig)
	want := "SEVERITY   CODE          OBJECT               FINDING\nwarning    ExternalIPs   Service default/s1   192.0.2.10:80/TCP: stop working\n\nExternalIPs\nUse a Service of type LoadBalancer"
	if code != exitFindings || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "\n\n1 finding in 2 Services and 1 Node.\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	_, instead, _ := audited("--kubeconfig", kubeconfig, "-o", "manifests")
	if !strings.HasPrefix(instead, "---\n# A controller") || !strings.Contains(instead, "  name: s1\n") || !strings.HasSuffix(instead, "  type: LoadBalancer\n") {
		t.Errorf("manifests:\n%s", instead)
	}
	_, out, _ = audited("--kubeconfig", kubeconfig, "-o", "json")
	if _, same, _ := analyzed("--kubeconfig", kubeconfig, "-o", "json", "--group", "upgrade"); same != out {
		t.Errorf("analyze prints\n%s\naudit\n%s", same, out)
	}
	remedy, _ := findings.Define(findings.ExternalIPs)
	var report map[string]any
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{
		"kind": "Analysis", "apiVersion": "serviceproxy/v1alpha1", "services": 2.0, "endpointSlices": 0.0, "nodes": 1.0,
		"findings": []any{map[string]any{"code": "ExternalIPs", "severity": "warning", "hint": remedy.Remedy, "kind": "Service", "namespace": "default", "name": "s1",
			"message": "192.0.2.10:80/TCP: stop working", "manifest": strings.TrimPrefix(instead, "---\n")}},
	}, report); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestModeChange checks what an audit compares, and that it compares nothing without a change of the mode.
func TestModeChange(t *testing.T) {
	none, all, tcp := findings.Options{}, []string{"TCP", "UDP", "SCTP"}, []string{"TCP"}
	change := func(everywhere bool, before, after []string) findings.Options {
		return findings.Options{From: findings.ModeNodePorts{Mode: "iptables", Everywhere: everywhere, Localhost: before}, To: findings.ModeNodePorts{Mode: "nftables", Localhost: after}}
	}
	back := change(true, all, nil)
	back.From, back.To = back.To, back.From
	ipvs := change(true, nil, nil)
	ipvs.From.Mode = "ipvs"
	for _, test := range []struct {
		mode, to        config.ProxyMode
		addresses       []string
		localhost, gate bool
		want            findings.Options
	}{
		{"iptables", "", nil, true, false, none},
		{"", "", nil, true, false, none},
		{"nftables", "nftables", nil, true, false, none},
		{"iptables", "iptables", nil, true, false, none},
		{"", "iptables", nil, true, false, none},
		{"ipvs", "", nil, true, false, ipvs},
		{"iptables", "nftables", nil, true, false, change(true, all, nil)},
		{"", "nftables", nil, true, true, change(true, all, nil)}, // the gate requires a loopback range
		{"nftables", "iptables", nil, true, false, back},
		{"iptables", "nftables", nil, false, false, change(true, nil, nil)},
		{"iptables", "nftables", []string{"primary"}, true, false, change(false, nil, nil)},
		{"iptables", "nftables", []string{"primary", "localhost"}, true, false, change(false, all, nil)},
		{"iptables", "nftables", []string{"primary", "127.0.0.0/8"}, true, true, change(false, all, tcp)},
		{"iptables", "nftables", []string{"0.0.0.0/0"}, true, false, change(false, all, nil)},
		{"iptables", "nftables", []string{"all"}, true, true, change(false, all, nil)},
		{"iptables", "nftables", []string{"10.0.0.0/8"}, true, false, change(false, nil, nil)},
	} {
		cfg := &config.KubeProxyConfiguration{Mode: test.mode, NodePortAddresses: test.addresses}
		cfg.IPTables.LocalhostNodePorts = test.localhost
		got, err := modeChange(cfg, test.to, features.Read(map[string]bool{"KubeProxyNFTablesLocalhostNodePorts": test.gate}).Gate)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%+v: %v (-want +got):\n%s", test, err, diff)
		}
	}
}

// TestFindingsArePrintable checks that audit and analyze print nothing that a terminal interprets, whatever objects contain.
func TestFindingsArePrintable(t *testing.T) {
	path := filepath.Join(files(t, map[string]string{"web.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: \"web\\e[2J\\u202e\"}\n" +
		"spec: {clusterIP: 10.96.0.1, externalIPs: [192.0.2.1, \"\\e]0;x\\a\"], ports: [{name: \"\\e[31m\\n\", port: 80}]}\n" +
		"---\napiVersion: \"\\e[31m/v1\"\nkind: \"\\e[2J\"\n"}), "web.yaml")
	for _, command := range []string{"audit", "analyze"} {
		var out, errs bytes.Buffer
		code := Run([]string{command, "--manifests", path}, &out, &errs)
		text := out.String() + errs.String()
		if code != exitFindings || !strings.Contains(text, "web?[2J?") || !strings.Contains(text, "192.0.2.1") {
			t.Errorf("%s: exit code %d: %q", command, code, text)
		}
		if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("%s: not printable at %d: %q", command, at, text)
		}
	}
}
