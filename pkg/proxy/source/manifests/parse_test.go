package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

const goodService = `apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  clusterIP: 10.0.0.1
  ports:
  - port: 80
`

const goodSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels:
    kubernetes.io/service-name: web
addressType: IPv4
ports:
- port: 8080
endpoints:
- addresses: [10.1.0.1]
`

// TestParseKinds reads every kind in every form.
func TestParseKinds(t *testing.T) {
	node := "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
	cidr := "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: {cidrs: [10.0.0.0/16]}\n"
	indent := func(text string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	all := []string{"Service default/web", "EndpointSlice default/web-1", "Node n1", "ServiceCIDR kubernetes"}
	tests := []struct {
		name, file, data string
		want             []string
	}{
		{"documents", "a.yaml", goodService + "---\n" + goodSlice + "---\n" + node + "---\n" + cidr, all},
		{"markers, comments and directives", "a.yml", "%YAML 1.1\n# one\n---\n" + goodService + "...\n# two\n---\n---\n# three\n--- # four\n" + goodSlice +
			"---\n" + node + "...\n---\n" + cidr + "---\n", all},
		{"list", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n" + indent(goodService) + indent(goodSlice) + indent(node) + indent(cidr), all},
		{"list in a list", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  metadata: {resourceVersion: \"\"}\n  items:\n  " +
			strings.ReplaceAll(indent(goodService), "\n", "\n  ") + "\n", all[:1]},
		{"typed list", "a.yaml", "apiVersion: v1\nkind: ServiceList\nmetadata: {resourceVersion: \"5\"}\nitems:\n- metadata: {name: web}\n  spec: {clusterIP: None}\n", all[:1]},
		{"empty list", "a.yaml", "apiVersion: v1\nkind: List\nitems: []\n", nil},
		{"json", "a.json", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`, all[2:3]},
		{"json documents", "a.JSON", "\xef\xbb\xbf" + `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}
			{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"kubernetes"},"spec":{"cidrs":["fd00::/112"]}}`, all[2:]},
		{"json in yaml", "a.yaml", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`, all[2:3]},
		{"carriage returns", "a.yaml", strings.ReplaceAll(goodService+"---\n"+goodSlice, "\n", "\r\n"), all[:2]},
		{"only a comment", "a.yaml", "# nothing yet\n", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			parsed := Parse(test.file, []byte(test.data), false)
			if parsed.Err != nil || parsed.Ignored != nil {
				t.Fatalf("Parse: %v, ignored %v", parsed.Err, parsed.Ignored)
			}
			var got []string
			for _, object := range parsed.Objects {
				got = append(got, keyOf(object).String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParseDefaults checks that missing fields get the defaults of the API server.
func TestParseDefaults(t *testing.T) {
	objects, err := parseAll("a.yaml", []byte(goodService+"  externalIPs: [192.0.2.1]\n---\n"+goodSlice))
	if err != nil {
		t.Fatal(err)
	}
	service, slice := objects[0].(*corev1.Service), objects[1].(*discoveryv1.EndpointSlice)
	local := corev1.ServiceInternalTrafficPolicyCluster
	want := corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
		ExternalIPs: []string{"192.0.2.1"}, SessionAffinity: corev1.ServiceAffinityNone,
		InternalTrafficPolicy: &local, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
		Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
	}
	if diff := cmp.Diff(want, service.Spec); diff != "" {
		t.Errorf("Service (-want +got):\n%s", diff)
	}
	if service.Namespace != "default" || slice.Namespace != "default" {
		t.Errorf("namespaces %q and %q, want default", service.Namespace, slice.Namespace)
	}
	if *slice.Ports[0].Name != "" || *slice.Ports[0].Protocol != corev1.ProtocolTCP {
		t.Errorf("slice port %+v, want an empty name and TCP", slice.Ports[0])
	}
	objects, err = parseAll("a.yaml", []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIPs: [fd00::1, 10.0.0.1]\n  ports: [{port: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := objects[0].(*corev1.Service).Spec.ClusterIP; got != "fd00::1" {
		t.Errorf("clusterIP %q, want the first of clusterIPs", got)
	}
	objects, err = parseAll("a.yaml", []byte("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDR: 10.1.0.0/24}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := objects[0].(*corev1.Node).Spec.PodCIDRs; len(got) != 1 || got[0] != "10.1.0.0/24" {
		t.Errorf("podCIDRs %q, want podCIDR", got)
	}
}

// parseAll parses a file whose objects are all used.
func parseAll(name string, data []byte) ([]runtime.Object, error) {
	file := Parse(name, data, false)
	return file.Objects, file.Err
}

// TestParseInvalidObject checks that the other objects of a file with an invalid one are used, and that objects of other kinds
// are ignored with their line.
func TestParseInvalidObject(t *testing.T) {
	bad := strings.Replace(goodService, "10.0.0.1", "10.0.0.256", 1)
	deployment := "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 1}\n"
	knative := "apiVersion: serving.knative.dev/v1\nkind: Service\nspec: {template: {}}\n"
	file := Parse("a.yaml", []byte(bad+"---\n"+goodSlice+"---\nkind: [\n---\n"+deployment+"---\n"+knative+
		"---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- {apiVersion: v1, kind: Node, metadata: {name: n1}}\n- {apiVersion: v1, kind: Node, metadata: {name: n2, x: 1}}\n"), false)
	var objects, ignored []string
	for _, object := range file.Objects {
		objects = append(objects, keyOf(object).String())
	}
	for _, o := range file.Ignored {
		ignored = append(ignored, o.String())
	}
	if diff := cmp.Diff([]string{"EndpointSlice default/web-1", "Node n1"}, objects); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Deployment (apps/v1) in line 25", "Service (serving.knative.dev/v1) in line 29", "Pod (v1) in line 35"}, ignored); diff != "" {
		t.Errorf("ignored (-want +got):\n%s", diff)
	}
	want := []string{"a.yaml:6: Service default/web: spec.clusterIP", "a.yaml:22: not YAML", `a.yaml:37: unknown field "metadata.x"`}
	lines := strings.Split(fmt.Sprint(file.Err), "\n")
	if len(lines) != len(want) {
		t.Fatalf("errors:\n%v\nwant\n%q", file.Err, want)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("error %d is %s, want %s", i, lines[i], want[i])
		}
	}
}

// errorTest is a file and the beginning of its error, after the file's name.
type errorTest struct{ name, data, want string }

// checkErrors checks that each file has one error, with its line.
func checkErrors(t *testing.T, tests []errorTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			objects, err := parseAll("dir/a.yaml", []byte(test.data))
			if want := strings.Count(test.data, goodService+"---"); err == nil || len(objects) != want {
				t.Fatalf("Parse gave %d objects and the error %v, want %d and an error", len(objects), err, want)
			}
			if want := "dir/a.yaml:" + test.want; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error\n%v\nwant\n%s", err, want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines:\n%v", err)
			}
		})
	}
}

// TestParseErrorsInFiles checks errors of files that contain no objects.
func TestParseErrorsInFiles(t *testing.T) {
	with := func(old, other string) string { return strings.Replace(goodService, old, other, 1) }
	slice := func(old, other string) string { return strings.Replace(goodSlice, old, other, 1) }
	checkErrors(t, []errorTest{
		{"empty", "", "1: the file is empty"},
		{"white space", "\n \n", "1: the file is empty"},
		{"syntax", with("spec:", "spec: :"), "5: not YAML: mapping values"},
		{"indentation", with("  ports", " ports"), "7: not YAML: did not find expected key"},
		{"second document", goodService + "---\nkind: [\n", "10: not YAML: did not find expected"},
		{"tab", with("  name", "\tname"), "4: not YAML: found character that cannot start any token"},
		{"key twice", with("kind: Service", "kind: Service\nkind: Node"), "3: not YAML: key \"kind\" already set"},
		{"unknown anchor", with("web", "*web"), "1: not YAML: unknown anchor 'web'"},
		{"no mapping", "- a\n- b\n", "1: expected an object"},
		{"no kind", "metadata: {name: a}\n", "1: kind is missing"},
		{"old apiVersion", slice("discovery.k8s.io/v1", "discovery.k8s.io/v1beta1"), `1: apiVersion "discovery.k8s.io/v1beta1" of kind EndpointSlice is unknown; use discovery.k8s.io/v1`},
		{"unknown field", with("clusterIP:", "clusterip:"), `6: unknown field "spec.clusterip"`},
		{"unknown field in a list", with("port: 80", "port: 80\n    porto: 5"), `9: unknown field "spec.ports[0].porto"`},
		{"number wanted", with("80", "eighty"), "8: spec.ports[0].port: string, expected a whole number of int32"},
		{"number too large", with("80", "8000000000"), "8: spec.ports[0].port: number 8000000000, expected a whole number of int32"},
		{"list wanted", with("- port", "  port"), "7: spec.ports: object, expected a list"},
		{"string wanted", with("name: web", "name: on"), "4: metadata.name: bool, expected a string; put it in quotes"},
		{"kind is a list", with("kind: Service", "kind: [Service]"), "2: kind: array, expected a string"},
		{"in a list item", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: a\n    nom: b\n", `8: unknown field "metadata.nom"`},
		{"List of another group", "apiVersion: v2\nkind: List\n", `1: apiVersion "v2" of kind List`},
		{"null item", "apiVersion: v1\nkind: List\nitems:\n-\n", "4: expected an object"},
		{"same object twice", goodService + "---\n" + goodService, "13: Service default/web is already defined in the document at line 1"},
	})
}

// TestParseErrorsInServices checks errors in names and in Services.
func TestParseErrorsInServices(t *testing.T) {
	with := func(old, other string) string { return strings.Replace(goodService, old, other, 1) }
	checkErrors(t, []errorTest{
		{"no name", with("name: web", "labels: {}"), "3: Service default/: metadata.name: a name is required"},
		{"name", with("web", "Web"), `4: Service default/Web: metadata.name: "Web": a lowercase RFC 1123 label`},
		{"namespace", with("name: web", "name: web\n  namespace: a/b"), `5: Service a/b/web: metadata.namespace: "a/b"`},
		{"node in a namespace", "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  namespace: b\n", "5: Node a: metadata.namespace: Nodes have no namespace"},
		{"type", with("spec:", "spec:\n  type: Clusterip"), `6: Service default/web: spec.type: "Clusterip" is not one of`},
		{"policy", with("spec:", "spec:\n  internalTrafficPolicy: local"), `6: Service default/web: spec.internalTrafficPolicy: "local" is not one of`},
		{"affinity", with("spec:", "spec:\n  sessionAffinity: ClientIp"), `6: Service default/web: spec.sessionAffinity: "ClientIp" is not one of`},
		{"affinity timeout", with("spec:", "spec:\n  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}"),
			"7: Service default/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 is not between 1 and 86400"},
		{"no cluster IP", with("  clusterIP: 10.0.0.1\n", ""), "5: Service default/web: spec.clusterIP: is required, because there is no API server"},
		{"cluster IP", with("10.0.0.1", "10.0.0.256"), `6: Service default/web: spec.clusterIP: "10.0.0.256" is not an IP address`},
		{"cluster IPs differ", with("spec:", "spec:\n  clusterIPs: [10.0.0.2]"), `6: Service default/web: spec.clusterIPs[0]: "10.0.0.2" differs from spec.clusterIP`},
		{"cluster IPs of one family", with("spec:", "spec:\n  clusterIPs:\n  - 10.0.0.1\n  - 10.0.0.2"), "8: Service default/web: spec.clusterIPs[1]: 10.0.0.2 is of the same family"},
		{"external IP", with("spec:", "spec:\n  externalIPs:\n  - 192.0.2.1\n  - example.com"), `8: Service default/web: spec.externalIPs[1]: "example.com"`},
		{"source range", with("spec:", "spec:\n  loadBalancerSourceRanges: [10.0.0.0]"), `6: Service default/web: spec.loadBalancerSourceRanges[0]: "10.0.0.0" is not a CIDR`},
		{"no ports", with("ports:\n  - port: 80", "ports: []"), "7: Service default/web: spec.ports: at least one port"},
		{"port 0", with("80", "0"), "8: Service default/web: spec.ports[0].port: 0 is not a port number"},
		{"port too large", with("80", "65536"), "8: Service default/web: spec.ports[0].port: 65536 is not a port number"},
		{"protocol", with("- port", "- protocol: tcp\n    port"), `8: Service default/web: spec.ports[0].protocol: "tcp" is not one of TCP, UDP and SCTP`},
		{"nameless ports", with("- port: 80", "- {name: a, port: 80}\n  - port: 81"), "9: Service default/web: spec.ports[1].name: is required, because there are several ports"},
		{"port names", with("- port: 80", "- {name: a, port: 80}\n  - name: a\n    port: 81"), "9: Service default/web: spec.ports[1].name: a is already used by item 0"},
		{"port twice", with("- port: 80", "- {name: a, port: 80}\n  - name: b\n    port: 80"), "10: Service default/web: spec.ports[1].port: 80/TCP is already used by item 0"},
		{"node port of a cluster IP", with("- port: 80", "- port: 80\n    nodePort: 30080"), "9: Service default/web: spec.ports[0].nodePort: a Service of type ClusterIP"},
		{"node port missing", with("spec:", "spec:\n  type: NodePort"), "9: Service default/web: spec.ports[0].nodePort: is required, because there is no API server"},
		{"ingress", with("spec:", "status:\n  loadBalancer:\n    ingress:\n    - hostname: a\n    - ip: x\nspec:\n  type: LoadBalancer"),
			`9: Service default/web: status.loadBalancer.ingress[1].ip: "x" is not an IP address`},
		{"ipMode", with("spec:", "status:\n  loadBalancer:\n    ingress:\n    - {ip: 192.0.2.1, ipMode: proxy}\nspec:\n  type: LoadBalancer"),
			`8: Service default/web: status.loadBalancer.ingress[0].ipMode: "proxy" is not one of`},
	})
}

// TestParseErrorsInSlices checks errors in EndpointSlices.
func TestParseErrorsInSlices(t *testing.T) {
	slice := func(old, other string) string { return strings.Replace(goodSlice, old, other, 1) }
	checkErrors(t, []errorTest{
		{"slice of no Service", slice("kubernetes.io/service-name", "app"), "5: EndpointSlice default/web-1: metadata.labels: it belongs to no Service"},
		{"address type", slice("addressType: IPv4", "addressType: ipv4"), `7: EndpointSlice default/web-1: addressType: "ipv4" is not one of IPv4, IPv6 and FQDN`},
		{"no address type", slice("addressType: IPv4\n", ""), `1: EndpointSlice default/web-1: addressType: "" is not one of IPv4, IPv6 and FQDN`},
		{"wrong family", slice("10.1.0.1", "fd00::1"), "11: EndpointSlice default/web-1: endpoints[0].addresses[0]: fd00::1 is not of the slice's addressType IPv4"},
		{"loopback endpoint", slice("10.1.0.1", "127.0.0.1"), "11: EndpointSlice default/web-1: endpoints[0].addresses[0]: 127.0.0.1 is a loopback"},
		{"no address", slice("[10.1.0.1]", "[]"), "11: EndpointSlice default/web-1: endpoints[0].addresses: it is empty"},
		{"no slice port", slice("port: 8080", "name: web"), "9: EndpointSlice default/web-1: ports[0]: it has no name or no port"},
		{"slice port name", slice("port: 8080", "{name: a, port: 1}\n- {name: a, port: 2}"), "10: EndpointSlice default/web-1: ports[1].name: a is already used by item 0"},
	})
}

// TestParseErrorsInOthers checks errors in Nodes and ServiceCIDRs.
func TestParseErrorsInOthers(t *testing.T) {
	checkErrors(t, []errorTest{
		{"pod CIDR", "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec:\n  podCIDRs: [10.0.0.0/33]\n", `5: Node a: spec.podCIDRs[0]: "10.0.0.0/33" is not a CIDR`},
		{"node address", "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus:\n  addresses:\n  - {type: Hostname, address: a}\n  - {type: InternalIP, address: b}\n",
			`7: Node a: status.addresses[1].address: "b" is not an IP address`},
		{"no CIDRs", "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: a}\nspec: {cidrs: []}\n", "4: ServiceCIDR a: spec.cidrs: at least one"},
	})
}

// TestParseErrorsInJSON checks the lines of errors in JSON files.
func TestParseErrorsInJSON(t *testing.T) {
	tests := []errorTest{
		{"syntax", "{\n\"kind\": \"Node\",\n}", "3: not JSON: invalid character '}'"},
		{"cut off", "{\n\"kind\": \"Node\"\n", "3: not JSON: unexpected EOF"},
		{"type", "{\"apiVersion\": \"v1\",\n\t\"kind\": \"Node\",\n\t\"metadata\": {\n\t\t\"name\": 5}}", "4: metadata.name: number, expected a string"},
		{"unknown field", "{\"apiVersion\": \"v1\",\n\"kind\": \"Node\", \"metadata\": {\"name\": \"a\"},\n\"spec\": {\n\"a\": 1}}", `4: unknown field "spec.a"`},
		{"field twice", "{\"apiVersion\": \"v1\",\n\"kind\": \"Node\", \"metadata\": {\"name\": \"a\",\n\"name\": \"a\"}}", `3: duplicate field "metadata.name"`},
		{"second value", "{\"apiVersion\": \"v1\",\n\"kind\": \"Node\", \"metadata\": {\"name\": \"a\"}}\n\n{\n\"metadata\": {}}", "4: kind is missing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseAll("a.json", []byte(test.data))
			if err == nil || !strings.HasPrefix(err.Error(), "a.json:"+test.want) {
				t.Errorf("error\n%v\nwant\na.json:%s", err, test.want)
			}
		})
	}
}

// TestParseManyErrors checks that errors are in the order of lines, and limited.
func TestParseManyErrors(t *testing.T) {
	data := goodService + "---\nkind: [\n" + strings.Repeat("---\nmetadata: {}\n", 20) + "---\nkind: {\n"
	_, err := parseAll("a.yaml", []byte(data))
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxErrors+1 || !strings.HasPrefix(lines[0], "a.yaml:10: ") || !strings.HasPrefix(lines[1], "a.yaml:12: ") || lines[10] != "a.yaml: 12 more errors" {
		t.Errorf("errors:\n%v", err)
	}
}

// TestParseLarge reads files of the size that large clusters have.
func TestParseLarge(t *testing.T) {
	tests := []struct {
		name                string
		size                int
		head, endpoint, end string
	}{
		{"a.yaml", 1 << 20, goodSlice, "- addresses: [10.1.0.1]\n  conditions: {ready: true, serving: true, terminating: false}\n", ""},
		{"a.json", 10 << 20, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"a","labels":{"kubernetes.io/service-name":"a"}},
			"addressType":"IPv4","endpoints":[{"addresses":["10.1.0.1"]}`, `,{"addresses":["10.1.0.1"],"conditions":{"ready":true},"nodeName":"n"}`, "]}"},
	}
	for _, test := range tests {
		repetitions := test.size / len(test.endpoint)
		objects, err := parseAll(test.name, []byte(test.head+strings.Repeat(test.endpoint, repetitions)+test.end))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(objects[0].(*discoveryv1.EndpointSlice).Endpoints); got != repetitions+1 {
			t.Errorf("%s: %d endpoints, want %d", test.name, got, repetitions+1)
		}
	}
}

// FuzzParse checks that Parse returns errors with a line, or objects without problems for the Builder.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{goodService, goodSlice, "--- {a: &a [*a]}\n", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node, metadata: {name: a}}]\n",
		"? a\n: b\n", "a: !!binary x\n", "<<: {kind: Node}\n", "{\"kind\":\"ServiceList\",\"items\":[{}]}"} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		name := "a.yaml"
		if isJSON {
			name = "a.json"
		}
		objects, err := parseAll(name, data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), name+":") {
				t.Errorf("the error names no line: %v", err)
			}
			return
		}
		b := cluster.NewBuilder("n")
		if err := b.Update(func(u *cluster.Update) { Apply(u, objects) }); err != nil {
			t.Errorf("the Builder reports problems with valid objects: %v", err)
		}
	})
}

// TestExamples parses typical files.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseAll(name, data); err != nil {
			t.Error(err)
		}
	}
}

// TestRead reads a directory as its Source does, and leniently: the same objects are used, and what the Source refuses is reported
// with its line. Pipes and files of other kinds are no manifests.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	unknown := strings.Replace(goodService, "port: 80", "porto: 5, port: 80", 1)
	for name, text := range map[string]string{
		"a.yaml": strings.Replace(goodService, "port: 80", "port: 80\n    porto: 5", 1) + "---\n" + goodSlice,
		"b.yml":  goodService + "---\napiVersion: v1\nkind: Service\nmetadata: {name: new}\nspec: {ports: [{port: 80}]}\n---\napiVersion: apps/v1\nkind: Deployment\n",
		"c.json": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}{"apiVersion":"discovery.k8s.io/v1beta1","kind":"EndpointSlice"}`,
		"d.yaml": "kind: [\n", ".hidden.yaml": unknown, "README.md": unknown,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "e.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := Read(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range file.Objects {
		got = append(got, keyOf(object).String())
	}
	for _, refused := range file.Refused {
		got = append(got, refused.Object.String()+" "+strings.TrimPrefix(refused.Error(), dir+"/"))
	}
	for _, ignored := range file.Ignored {
		got = append(got, ignored.String())
	}
	for line := range strings.Lines(file.Err.Error()) {
		got = append(got, strings.TrimPrefix(strings.TrimSpace(line), dir+"/"))
	}
	if diff := cmp.Diff([]string{"Service default/web", "EndpointSlice default/web-1", "Service default/new", "Node n1",
		`Service default/web a.yaml:9: unknown field "spec.ports[0].porto"`,
		"Service default/new b.yml:13: spec.clusterIP: is required, because there is no API server to allocate an address; use None for a headless Service",
		"Service default/web b.yml: Service default/web is ignored, because a.yaml contains it too; remove it from one of the two",
		"Deployment (apps/v1) in line 16", "EndpointSlice (discovery.k8s.io/v1beta1) in line 1",
		"d.yaml:1: not YAML: did not find expected node content", "e.yaml is not a regular file but a pipe (prw-------)"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	strict := Parse("a.yaml", []byte(strings.Replace(goodService, "port: 80", "port: 80\n    porto: 5", 1)), false)
	if len(strict.Objects) > 0 || strict.Err == nil {
		t.Errorf("Parse uses what Read refuses: %v", strict)
	}
	if _, err := Read(filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a directory that does not exist was read")
	}
}

// TestReadOne reads a file and standard input, and leaves the objects as they are written.
func TestReadOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte(goodService), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{path, "-"} {
		file, err := Read(from, strings.NewReader(goodService))
		if err != nil || file.Err != nil || len(file.Objects) != 1 || len(file.Refused) > 0 {
			t.Fatalf("%s: %+v, %v", from, file, err)
		}
		if s := file.Objects[0].(*corev1.Service); s.Spec.Type != "" || s.Namespace != "" {
			t.Errorf("%s: defaults were set: %+v", from, s)
		}
	}
	if file, err := Read("-", strings.NewReader("")); err != nil || file.Err == nil {
		t.Errorf("nothing on standard input: %+v, %v", file, err)
	}
}
