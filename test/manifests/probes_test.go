//go:build linux

package manifests

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// none is the result where the server is off.
const none = "none"

// TestProbes renders addresses of the health server and compares the probes with the address that the program listens on
// with the same configuration. A probe of another address makes the kubelet kill the pod again and again.
func TestProbes(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{`config: {}`, ":10256"},
		{`config: {healthzBindAddress: "0.0.0.0:10356"}`, ":10356"},
		{`config: {healthzBindAddress: "[::]:10356"}`, ":10356"},
		{`config: {healthzBindAddress: "[0:0::0]:10356"}`, ":10356"},
		{`config: {healthzBindAddress: "127.0.0.1:10256"}`, "127.0.0.1:10256"},
		{`config: {healthzBindAddress: "10.0.0.5:1"}`, "10.0.0.5:1"},
		{`config: {healthzBindAddress: "[fd00::10:5]:10356"}`, "fd00::10:5:10356"},
		{`config: {healthzBindAddress: "[::1]:10256"}`, "::1:10256"},
		{`config: {healthzBindAddress: "0.0.0.0"}`, ":10256"},
		{`config: {healthzBindAddress: "::"}`, ":10256"},
		{`config: {healthzBindAddress: "10.0.0.5"}`, "10.0.0.5:10256"},
		{`config: {healthzBindAddress: "fd00::10:5"}`, "fd00::10:5:10256"},
		{`config: {healthzBindAddress: "::1"}`, "::1:10256"},
		{`config: {healthzBindAddress: ""}`, none},
		{`config: {nodeIPOverride: ["fd00::1"]}`, ":10256"},
	} {
		t.Run(c.values, func(t *testing.T) {
			all := objects(t, needed, c.values)
			got := probe(t, all["DaemonSet kube-system/kube-proxy"], "spec", "template", "spec", "containers")
			if got != c.want {
				t.Errorf("the probes are for %q, want %q", got, c.want)
			}
			healthz, _ := addresses(t, all)
			if listens := target(t, healthz); got != listens {
				t.Errorf("the probes are for %q, and the program listens on %q", got, listens)
			}
			if strings.Contains(c.values, "nodeIPOverride") { // has no flag
				return
			}
			pod := objects(t, needed, "standalone: {enabled: true}\n"+c.values)["Pod kube-system/kube-proxy"]
			if got := probe(t, pod, "spec", "containers"); got != c.want {
				t.Errorf("standalone: the probes are for %q, want %q", got, c.want)
			}
			if listens := target(t, flags(t, pod)); listens != c.want {
				t.Errorf("standalone: the flags are those of %q, want %q", listens, c.want)
			}
		})
	}
}

// TestMetricsPort compares the port of the metrics Service and the PodMonitor with the one that the program listens on.
func TestMetricsPort(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{`""`, none}, {`"127.0.0.1:10349"`, "10349"}, {`"0.0.0.0:10349"`, "10349"}, {`"[::]:10349"`, "10349"},
		{`"0.0.0.0"`, "10249"}, {`"10.0.0.5"`, "10249"}, {`"::"`, "10249"}, {`"fd00::10:5"`, "10249"},
	} {
		t.Run(c.address, func(t *testing.T) {
			monitor := c.want != none && !strings.Contains(c.address, "127.")
			all := objects(t, needed, fmt.Sprintf(`{metrics: {podMonitor: {enabled: %v}}, config: {metricsBindAddress: %s}}`, monitor, c.address))
			got := none
			if service := all["Service kube-system/kube-proxy"]; service != nil {
				ports, _, _ := unstructured.NestedSlice(service, "spec", "ports")
				got = fmt.Sprint(ports[0].(object)["targetPort"])
			}
			if got != c.want {
				t.Errorf("the Service has port %s, want %s", got, c.want)
			}
			if _, metrics := addresses(t, all); port(metrics) != got {
				t.Errorf("the Service has port %s, and the program listens on %q", got, metrics)
			}
			if text := fmt.Sprint(all["PodMonitor kube-system/kube-proxy"]); monitor && !strings.Contains(text, "replacement:$1:"+c.want+" ") {
				t.Errorf("the PodMonitor lacks port %s: %s", c.want, text)
			}
		})
	}
}

// TestAddressErrors renders addresses that the program refuses.
func TestAddressErrors(t *testing.T) {
	for _, field := range []string{"healthzBindAddress", "metricsBindAddress"} {
		for _, address := range []string{":10256", "[::1]", "localhost:10256", "10256", "0.0.0.0:", "0.0.0.0:0", "0.0.0.0:010256", "[10.0.0.5", "::1]:10256"} {
			_, err := helm(needed, fmt.Sprintf(`config: {%s: %q}`, field, address))
			want := fmt.Sprintf("config.%s is %q: give an IP address with or without a port, such as ", field, address)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		}
	}
	if _, err := helm(needed, `{metrics: {podMonitor: {enabled: true}}, config: {metricsBindAddress: "::1"}}`); err == nil {
		t.Error("no error for a PodMonitor of a loopback address")
	}
}

// probe returns what the first container's probes ask, HOST:PORT.
func probe(t *testing.T, o object, path ...string) string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(o, path...)
	if err != nil || len(containers) == 0 {
		t.Fatalf("no containers in %v: %v", o, err)
	}
	var found [2]string
	for i, name := range []string{"livenessProbe", "startupProbe"} {
		get, ok, _ := unstructured.NestedMap(containers[0].(object), name, "httpGet")
		if !ok {
			found[i] = none
			continue
		}
		host, _ := get["host"].(string)
		found[i] = fmt.Sprint(host, ":", get["port"])
	}
	if found[0] != found[1] {
		t.Errorf("the liveness probe is for %s, and the startup probe for %s", found[0], found[1])
	}
	return found[0]
}

// addresses returns the addresses of the health and metrics servers in the configuration as the program reads it.
func addresses(t *testing.T, all map[string]object) (healthz, metrics string) {
	t.Helper()
	text, _, _ := unstructured.NestedString(all["ConfigMap kube-system/kube-proxy"], "data", "config.conf")
	file, err := config.ParseFile("config.conf", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return file.Config.HealthzBindAddress, file.Config.MetricsBindAddress
}

// flags returns the address of the health server by the flags of a static pod, which both containers have.
func flags(t *testing.T, pod object) string {
	t.Helper()
	var found []string
	for _, kind := range []string{"initContainers", "containers"} {
		all, _, err := unstructured.NestedSlice(pod, "spec", kind)
		if err != nil || len(all) == 0 {
			t.Fatalf("no %s in %v: %v", kind, pod, err)
		}
		address := "0.0.0.0:10256" // the flag's default
		args, _, _ := unstructured.NestedStringSlice(all[0].(object), "args")
		for _, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--healthz-bind-address="); ok {
				address = value
			}
			if arg == "--healthz-port=0" {
				address = ""
			}
		}
		found = append(found, address)
	}
	if found[0] != found[1] {
		t.Errorf("the containers have the addresses %q", found)
	}
	return found[0]
}

// target returns what a probe of an address has to ask. Without a host the kubelet asks the pod's address, which is its node's.
func target(t *testing.T, address string) string {
	t.Helper()
	if address == "" {
		return none
	}
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	if a.Addr().IsUnspecified() {
		return fmt.Sprint(":", a.Port())
	}
	return fmt.Sprint(a.Addr(), ":", a.Port())
}

// port returns the port of an address.
func port(address string) string {
	if _, port, err := net.SplitHostPort(address); err == nil {
		return port
	}
	return none
}
