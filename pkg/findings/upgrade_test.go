package findings

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// look checks the documents of a text for the group Upgrade.
func look(t *testing.T, options Options, text string) *Report {
	t.Helper()
	options.Groups = []Group{Upgrade}
	a := New(options)
	if file := read(a, text); file.Err != nil {
		t.Fatal(file.Err)
	}
	return a.Report()
}

// lines are findings without their manifests.
func lines(report *Report) []string {
	var all []string
	for _, f := range report.Findings {
		all = append(all, fmt.Sprintf("%s %s %s/%s: %s", f.Code, f.Kind, f.Namespace, f.Name, f.Message))
	}
	return all
}

// service is a Service with ports 80/TCP and 53/UDP, and more of a spec, indented by two.
func service(name, spec string) string {
	return "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: shop}\nspec:\n" +
		"  ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]\n  " + strings.ReplaceAll(spec, "\n", "\n  ") + "\n"
}

// TestUpgradeFindings has a row for every check, and for what comes close to one.
func TestUpgradeFindings(t *testing.T) {
	all := []string{"TCP", "UDP", "SCTP"}
	// change is from iptables to nftables mode.
	change := func(everywhere bool, before, after []string) Options {
		return Options{From: ModeNodePorts{"iptables", everywhere, before}, To: ModeNodePorts{"nftables", false, after}}
	}
	both := change(true, all, nil)
	back, newer := Options{From: both.To, To: both.From}, both
	newer.OldestKernel = "5.13"
	ports := "type: NodePort\nclusterIP: 10.96.0.10\nports: [{port: 80, nodePort: 30080}, {port: 53, protocol: UDP, nodePort: 30053}]"
	plainPorts := strings.Replace(service("web", ports), "  ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]\n", "", 1)
	node := "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: Hostname, address: n1}]%s}\n"
	for _, test := range []struct {
		name, objects string
		options       Options
		want          []string
	}{
		{"nothing", service("web", "clusterIP: 10.96.0.10"), both, nil},
		{"external IPs", service("web", "clusterIP: 10.96.0.10\nexternalIPs: [192.0.2.10, '2001:db8::1']"), both, []string{
			"ExternalIPs Service shop/web: 192.0.2.10:80/TCP, 192.0.2.10:53/UDP, [2001:db8::1]:80/TCP, [2001:db8::1]:53/UDP: stop working"}},
		{"external IPs beside an acknowledged address",
			service("web", "type: LoadBalancer\nclusterIP: 10.96.0.10\nexternalIPs: [192.0.2.10]") + "status: {loadBalancer: {ingress: [{ip: 192.0.2.20}]}}\n", Options{},
			[]string{"ExternalIPs Service shop/web: 192.0.2.10:80/TCP, 192.0.2.10:53/UDP: stop working; acknowledged are 192.0.2.20"}},
		{"external IPs of a headless Service", service("web", "clusterIP: None\nexternalIPs: [192.0.2.1]") + fmt.Sprintf(node, ""), both,
			[]string{"ExternalIPs Service shop/web: 192.0.2.1: no effect, because the Service is headless"}},
		{"external IPs of an ExternalName", service("web", "type: ExternalName\nexternalName: a.example\nexternalIPs: [192.0.2.1]"), both,
			[]string{"ExternalIPs Service shop/web: 192.0.2.1: no effect, because the Service is an ExternalName"}},
		{"external IPs left to another proxy", strings.Replace(service("web", "clusterIP: 10.96.0.10\nexternalIPs: [192.0.2.1]"),
			"namespace: shop}", "namespace: shop, labels: {service.kubernetes.io/service-proxy-name: other}}", 1), both, nil},
		{"an external IP that is a node's", service("web", "clusterIP: 10.96.0.10\nexternalIPs: [192.0.2.1]") + fmt.Sprintf(node, ""), both, []string{
			"ExternalIPs Service shop/web: 192.0.2.1:80/TCP, 192.0.2.1:53/UDP: stop working",
			"ExternalIPCapture Service shop/web: external IP 192.0.2.1 is an address of node n1: with external IPs served, it draws that traffic"}},
		{"an external IP that is a cluster IP", service("web", "clusterIP: 10.96.0.10\nexternalIPs: [10.96.0.011]") + service("dns", "clusterIP: 10.96.0.11"), both, []string{
			"ExternalIPs Service shop/web: 10.96.0.011:80/TCP, 10.96.0.011:53/UDP: stop working",
			"ExternalIPCapture Service shop/web: external IP 10.96.0.11 is the cluster IP of Service shop/dns: with external IPs served, it draws that traffic"}},
		{"an external IP that is its own cluster IP", service("web", "clusterIP: 10.96.0.10\nexternalIPs: [10.96.0.10]"), Options{Skip: []Code{ExternalIPs}}, nil},
		{"a request that was granted", service("web", "type: LoadBalancer\nclusterIP: 10.96.0.10\nloadBalancerIP: 192.0.2.9") +
			"status: {loadBalancer: {ingress: [{ip: 192.0.2.9, ipMode: Proxy}]}}\n", both, nil},
		{"a request that no controller granted", service("web", "type: LoadBalancer\nclusterIP: 10.96.0.10\nloadBalancerIP: 192.0.2.9"), both,
			[]string{"LoadBalancerIPNotAcknowledged Service shop/web: asks for 192.0.2.9, which status does not acknowledge: no traffic to it is served"}},
		{"a request that was answered otherwise", service("web", "type: LoadBalancer\nclusterIP: 10.96.0.10\nloadBalancerIP: 192.0.2.9") +
			"status: {loadBalancer: {ingress: [{ip: 192.0.2.8}, {hostname: lb.example}]}}\n", both,
			[]string{"LoadBalancerIPNotAcknowledged Service shop/web: asks for 192.0.2.9, which status does not acknowledge: no traffic to it is served; acknowledged are 192.0.2.8"}},
		{"a request of another type", service("web", "clusterIP: 10.96.0.10\nloadBalancerIP: 192.0.2.9"), both, nil},
		{"node ports", plainPorts, both, []string{"NodePortsDifferByMode Service shop/web: 30080/TCP, 30053/UDP: iptables mode serves them on every address of a node " +
			"and on 127.0.0.1, which clients on the node may use; nftables mode on the primary addresses"}},
		{"node ports, the other way", plainPorts, back, []string{"NodePortsDifferByMode Service shop/web: 30080/TCP, 30053/UDP: iptables mode serves them on every address of a node " +
			"and on 127.0.0.1, which clients on the node may use; nftables mode on the primary addresses"}},
		{"node ports on addresses that are named", plainPorts, change(false, all, nil), []string{
			"NodePortsDifferByMode Service shop/web: 30080/TCP, 30053/UDP: iptables mode serves them on 127.0.0.1, which clients on the node may use; nftables mode does not"}},
		{"node ports on localhost by the feature gate", plainPorts, change(false, all, []string{"TCP"}), []string{
			"NodePortsDifferByMode Service shop/web: 30053/UDP: iptables mode serves them on 127.0.0.1, which clients on the node may use; nftables mode serves TCP there and rejects them"}},
		{"a TCP node port on localhost by the feature gate", strings.Replace(plainPorts, ", {port: 53, protocol: UDP, nodePort: 30053}", "", 1),
			change(false, all, []string{"TCP"}), nil},
		{"node ports without localhost", plainPorts, change(true, nil, nil), []string{
			"NodePortsDifferByMode Service shop/web: 30080/TCP, 30053/UDP: iptables mode serves them on every address of a node; nftables mode on the primary addresses"}},
		{"node ports that are the same everywhere", plainPorts, Options{}, nil},
		{"node ports that are on all addresses in both modes", plainPorts, Options{From: ModeNodePorts{"ipvs", true, nil}, To: ModeNodePorts{"iptables", true, nil}}, nil},
		{"node ports that are on localhost after the change", plainPorts,
			Options{From: ModeNodePorts{"ipvs", true, nil}, To: ModeNodePorts{"iptables", true, all}}, []string{
				"NodePortsDifferByMode Service shop/web: 30080/TCP, 30053/UDP: iptables mode serves them on 127.0.0.1, which clients on the node may use; ipvs mode does not"}},
		{"node ports on fewer addresses, and on localhost", plainPorts, change(true, nil, []string{"TCP"}), []string{
			"NodePortsDifferByMode Service shop/web: 30080/TCP, 30053/UDP: iptables mode serves them on every address of a node; nftables mode on the primary addresses"}},
		{"a node", fmt.Sprintf(node, ""), both, nil},
		{"a node that reports a proxy", fmt.Sprintf(node, ", nodeInfo: {kubeProxyVersion: v1.30.0}"), both,
			[]string{"NodeKubeProxyVersion Node /n1: status.nodeInfo.kubeProxyVersion says v1.30.0, which is kubelet's version"}},
		{"a node whose kernel is too old for the mode", fmt.Sprintf(node, ", nodeInfo: {kernelVersion: 5.10.0-23-cloud-amd64}"), newer,
			[]string{"NodeKernelTooOld Node /n1: Linux 5.10.0-23-cloud-amd64: nftables mode needs 5.13"}},
		{"a node whose kernel is new enough", fmt.Sprintf(node, ", nodeInfo: {kernelVersion: 5.13.0+}"), newer, nil},
		{"a node whose kernel has no number", fmt.Sprintf(node, ", nodeInfo: {kernelVersion: unknown}"), newer, nil},
		{"a node with Windows", fmt.Sprintf(node, ", nodeInfo: {kernelVersion: 4.0.1, operatingSystem: windows}"), newer, nil},
		{"an old kernel without a change", fmt.Sprintf(node, ", nodeInfo: {kernelVersion: 5.10.0}"), both, nil},
		{"a check that is skipped", fmt.Sprintf(node, ", nodeInfo: {kubeProxyVersion: v1.30.0}"), Options{Skip: []Code{NodeKubeProxyVersion}}, nil},
	} {
		if diff := cmp.Diff(test.want, lines(look(t, test.options, test.objects))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestInstead proves that the manifests ask for no external IP, keep the rest, and have nothing that only a server knows.
func TestInstead(t *testing.T) {
	const head = "apiVersion: v1\nkind: Service\nmetadata:\n  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}', keep: me}\n" +
		"  name: web\n  namespace: shop\n  uid: 8f0c\n  resourceVersion: '7'\n  creationTimestamp: 2026-01-01T00:00:00Z\n  labels: {app: web}\nspec:\n  selector: {app: web}\n" +
		"  ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP, nodePort: 30080}]\n  externalIPs: [192.0.2.10]\n  externalTrafficPolicy: Local\n  sessionAffinity: ClientIP\n"
	const kept = "apiVersion: v1\nkind: Service\nmetadata:\n  annotations:\n    keep: me\n  labels:\n    app: web\n  name: web\n  namespace: shop\nspec:\n"
	const ports = "  ports:\n  - name: http\n    nodePort: 30080\n    port: 80\n    protocol: TCP\n    targetPort: 8080\n  selector:\n    app: web\n  sessionAffinity: ClientIP\n"
	const ask = "# A controller for load balancers gives an address and acknowledges it in status.loadBalancer.ingress.\n" +
		"# To keep 192.0.2.10, ask for it as that controller's documentation says.\n"
	for spec, want := range map[string]string{
		"  clusterIP: 10.96.0.10\n  clusterIPs: [10.96.0.10]\n": ask + kept + "  externalTrafficPolicy: Local\n" + ports + "  type: LoadBalancer\n",
		"  clusterIP: 10.96.0.10\n  type: NodePort\n":           ask + kept + "  externalTrafficPolicy: Local\n" + ports + "  type: LoadBalancer\n",
		"  clusterIP: 10.96.0.10\n  type: LoadBalancer\n  healthCheckNodePort: 31000\n": "# Clients use the address that status.loadBalancer.ingress acknowledges.\n" +
			kept + "  externalTrafficPolicy: Local\n" + ports + "  type: LoadBalancer\n",
		"  clusterIP: None\n  type: ClusterIP\n": "# External IPs have no effect, because the Service is headless.\n" + kept + "  clusterIP: None\n" + ports + "  type: ClusterIP\n",
	} {
		report := look(t, Options{}, head+spec)
		if len(report.Findings) != 1 {
			t.Fatalf("%s: %v", spec, lines(report))
		}
		got := report.Findings[0].Manifest
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spec, diff)
		}
		var service corev1.Service
		if err := yaml.UnmarshalStrict([]byte(got), &service); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
		if again := look(t, Options{}, got); len(again.Findings) > 0 {
			t.Errorf("%s: the manifest to write instead has findings: %v", spec, lines(again))
		}
	}
}

// TestLists reads what kubectl prints, and passes over what else there is.
func TestLists(t *testing.T) {
	spec := "{clusterIP: 10.96.0.1, ports: [{port: 80}], externalIPs: [192.0.2.1]}"
	report := look(t, Options{}, "# nothing yet\n---\n"+
		"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: a}, spec: "+spec+"}\n- {apiVersion: v1, kind: Pod, metadata: {name: p}}\n"+
		"---\napiVersion: v1\nkind: ServiceList\nitems: [{metadata: {name: b}, spec: "+spec+"}]\n"+
		"---\napiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: c}\nspec: {template: {}}\n---\n")
	var names []string
	for _, f := range report.Findings {
		names = append(names, f.Namespace+"/"+f.Name)
	}
	if diff := cmp.Diff([]string{"default/a", "default/b"}, names); diff != "" || report.Services != 2 {
		t.Errorf("%d Services (-want +got):\n%s", report.Services, diff)
	}
}

// TestBadDocuments proves that what cannot be read is reported with its line, and that the rest is audited.
func TestBadDocuments(t *testing.T) {
	good := "---\napiVersion: v1\nkind: Service\nmetadata: {name: good}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
	for text, want := range map[string]string{
		"a: b\n":    "<stdin>:1: kind is missing",
		"kind: [\n": "<stdin>:1: not YAML: ",
		"apiVersion: v1\nkind: Service\nspec: {ports: 5}\n": "<stdin>:3: spec.ports: number, expected a list",
		"{{ template }}\n":                          "<stdin>:1: not YAML",
		"apiVersion: v1\nkind: List\nitems:\n- 3\n": "<stdin>:4: ",
		"apiVersion: v1\nkind: Node\nstatus: {nodeInfo: {kubeProxyVersion: {a: b}}}\n":              "<stdin>:3: status.nodeInfo.kubeProxyVersion: object, expected a string",
		"apiVersion: v1\nkind: ServiceList\nitems: [\n {metadata: {name: a}, spec: {ports: {}}}]\n": "<stdin>:4: spec.ports: object",
	} {
		analyzer := New(Options{Groups: []Group{Upgrade}})
		if got := fmt.Sprint(read(analyzer, text+good).Err); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %v, want %q...", text, got, want)
		}
		if analyzer.Report().Services != 1 {
			t.Errorf("%q: %d Services were audited, want the good one", text, analyzer.Report().Services)
		}
	}
}
