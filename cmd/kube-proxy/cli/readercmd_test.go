//go:build linux

package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
)

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
