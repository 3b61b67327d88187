//go:build linux

package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

// TestInvalidManifest asks for a Service whose manifest is refused: the answer names the fault, as that of a proxy does.
func TestInvalidManifest(t *testing.T) {
	directory := files(t, map[string]string{"bad.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: default}\n" +
		"spec: {clusterIP: 10.96.0.9, type: LoadBalancer, ports: [{port: 80}], loadBalancerSourceRanges: [x]}\n"})
	const fault = `bad.yaml:4: Service default/bad: spec.loadBalancerSourceRanges[0]: "x" is not a CIDR`
	for line, want := range map[string]int{"service describe bad": 1, "explain bad": 1, "service list": 0} {
		var out, errs bytes.Buffer
		code := Run(append(strings.Fields(line), "--manifests", directory, "--node", "n1"), &out, &errs)
		if text := errs.String(); code != want || !strings.Contains(text, "InvalidManifest: ") || !strings.Contains(text, fault) {
			t.Errorf("%s: exit code %d, %s", line, code, text)
		}
	}
}

// TestRenderConfiguredAddress renders for a node whose address the configuration gives: node ports are served there, as by the proxy.
func TestRenderConfiguredAddress(t *testing.T) {
	directory := files(t, map[string]string{
		"node.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n",
		"config":    kubeproxy.LatestHead + "mode: nftables\nnodePortAddresses: [primary]\nnodeIPOverride: [192.0.2.9]\n",
	})
	var out, errs bytes.Buffer
	code := Run([]string{"render", "--manifests", directory, "--node", "n1", "--config", filepath.Join(directory, "config")}, &out, &errs)
	if code != 0 || !strings.Contains(out.String(), "192.0.2.9") || strings.Contains(out.String(), "192.0.2.1 ") {
		t.Errorf("exit code %d, %s%s; want the rules of 192.0.2.9", code, &errs, &out)
	}
}
