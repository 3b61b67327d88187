//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// nodeService are a Service with a load balancer IP and its endpoint: the number-th node's first pod.
const nodeService = `apiVersion: v1
kind: Service
metadata: {name: node%[1]d, namespace: default, annotations: {kube-proxy/fast-path: "true"}}
spec: {clusterIP: 10.96.0.%[1]d, ports: [{port: 80, targetPort: 8080}], type: LoadBalancer}
status: {loadBalancer: {ingress: [{ip: 192.0.2.%[1]d}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: node%[1]d, namespace: default, labels: {kubernetes.io/service-name: node%[1]d}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.%[1]d.2], nodeName: node%[1]d}]
`

// TestKernelFastPath measures with two nodes. The first has the feature gate, and a fast path if its kernel has one.
// ROUNDS is the number of rounds, 1 by default.
func TestKernelFastPath(t *testing.T) {
	lab := netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}})
	if err := lab.Client.RouteVia(lab.Node2.Host, netip.MustParsePrefix("192.0.2.2/32")); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for number := range 2 {
		kubeproxy.MustWrite(filepath.Join(folder, fmt.Sprint(number, ".yaml")), fmt.Sprintf(nodeService, number+1))
	}
	var logs [2]netns.Log
	for i, node := range lab.Nodes() {
		proxy := node.Command(kubeproxy.Path(t), "--manifests", folder, "--proxy-mode", "nftables", "--hostname-override", node.Name,
			"--cluster-cidr", "10.244.0.0/16", "--conntrack-max-per-core", "0", fmt.Sprintf("--feature-gates=FlowtableFastPath=%t", i == 0))
		proxy.Stdout, proxy.Stderr = &logs[i], &logs[i]
		if err := proxy.Start(); err != nil {
			t.Fatal(err)
		}
		listener, err := node.Pods[0].Listen("tcp", ":8080")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go func() { _ = serveFastPath(listener) }()
	}
	dial := func(address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // an emulated machine on a busy one is slow to start a proxy
		defer cancel()
		for {
			c, err := lab.Client.Dial(ctx, "tcp", address)
			if err == nil || ctx.Err() != nil {
				return c, err
			}
			time.Sleep(10 * time.Millisecond) // the proxy starts
		}
	}
	rounds := 1
	if text := os.Getenv("ROUNDS"); text != "" {
		if _, err := fmt.Sscan(text, &rounds); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := measureFastPath(&out, dial, []string{"192.0.2.1:80", "192.0.2.2:80"}, rounds); err != nil {
		t.Fatalf("%v\n%s\n%s", err, logs[0].String(), logs[1].String())
	}
	t.Log("\n" + out.String())
	flowtables, err := lab.Node1.Command("nft", "list", "flowtables").Output()
	if err != nil {
		t.Fatal(err)
	}
	has, says := strings.Contains(string(flowtables), "eth0"), strings.Count(logs[0].String(), "No connection takes the fast path")
	if has != (says == 0) || says > 1 {
		t.Errorf("the flowtables are %q, and the log says %d times that there is none:\n%s", flowtables, says, logs[0].String())
	}
	if strings.Contains(logs[1].String(), "fast path") {
		t.Errorf("without the gate:\n%s", logs[1].String())
	}
}
