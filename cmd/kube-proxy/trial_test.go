//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// patience bounds what takes milliseconds on an idle machine.
const patience = 30 * time.Second

func TestMain(m *testing.M) { kubeproxy.Main(m) }

// nodePortService has a node port that is TCP, UDP and SCTP in both families, and an endpoint in node2.
const nodePortService = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  clusterIPs: [10.96.0.10, "fd00:10:96::10"]
  ports:
  - {name: tcp, port: 80, nodePort: 30080}
  - {name: udp, protocol: UDP, port: 80, nodePort: 30080}
  - {name: sctp, protocol: SCTP, port: 80, nodePort: 30080}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-ipv4, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: tcp, port: 8080}, {name: udp, protocol: UDP, port: 8080}, {name: sctp, protocol: SCTP, port: 8080}]
endpoints: [{addresses: [10.244.2.2], nodeName: node2}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-ipv6, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{name: tcp, port: 8080}, {name: udp, protocol: UDP, port: 8080}, {name: sctp, protocol: SCTP, port: 8080}]
endpoints: [{addresses: ["fd00:10:244:2::2"], nodeName: node2}]
`

// trial is a lab in which the program itself serves nodePortService from node1. A pod of node2 is the endpoint.
type trial struct {
	*testing.T
	lab          *netns.Lab
	program, dir string
	// running is the proxy, and log is what it has logged when it has ended.
	running *netns.Cmd
	log     *bytes.Buffer
}

func newTrial(t *testing.T) *trial {
	t.Helper()
	w := &trial{T: t, lab: netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"),
		netip.MustParsePrefix("2001:db8::/64")}}), dir: t.TempDir(), program: kubeproxy.Path(t)}
	if err := os.WriteFile(filepath.Join(w.dir, "web.yaml"), []byte(nodePortService), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range netns.Protocols() {
		w.serve(w.endpoint(), protocol, 8080)
	}
	return w
}

// endpoint is the Service's.
func (w *trial) endpoint() *netns.Host { return w.lab.Node2.Pods[0] }

func (w *trial) serve(host *netns.Host, protocol netns.Protocol, port uint16) {
	w.Helper()
	if _, err := host.Serve(protocol, port); err != nil {
		w.Fatal(err)
	}
}

// proxy runs kube-proxy in node1 in a mode until the test ends, and waits until it has written its rules.
func (w *trial) proxy(mode config.ProxyMode, flags ...string) {
	w.Helper()
	w.log = &bytes.Buffer{}
	cmd := w.lab.Node1.Command(w.program, append([]string{"--manifests", w.dir, "--proxy-mode", string(mode), "--hostname-override", "node1",
		"--bind-address", w.lab.Node1.IPv4.String(), "--metrics-bind-address", "127.0.0.1:10249"}, flags...)...)
	cmd.Stdout, cmd.Stderr = w.log, w.log
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.running = cmd
	w.Cleanup(func() {
		if err := cmd.Kill(); err != nil {
			w.Error(err)
		}
		if w.Failed() {
			w.Log(w.log.String())
		}
	})
	for began := time.Now(); w.metric(`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"}`) == ""; {
		if time.Since(began) > patience {
			w.Fatalf("no sync after %s", time.Since(began))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// programs replaces the objects, and waits for the sync.
func (w *trial) programs(objects string) {
	w.Helper()
	const synced = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"}`
	before := w.metric(synced)
	if err := os.WriteFile(filepath.Join(w.dir, "web.yaml"), []byte(objects), 0o600); err != nil {
		w.Fatal(err)
	}
	for began := time.Now(); w.metric(synced) == before; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			w.Fatalf("no sync %s after the objects were replaced", patience)
		}
	}
}

// until repeats the probe until the answer is as wanted: health checks and forwarders start just after the rules are in force.
func (w *trial) until(probe netns.Probe, want netns.Verdict, endpoint string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	took, last, err := probe.Until(ctx, func(a netns.Answer) bool { return a.Verdict == want && a.Endpoint == endpoint })
	w.Logf("%s: %s %s after %s", probe, last.Verdict, last.Endpoint, took.Round(time.Millisecond))
	if err != nil {
		w.Errorf("%s: want %s %s: %v; the last answer: %s", probe, want, endpoint, err, last)
	}
}

// metric is a sample's value as the proxy's page of metrics shows it; "" if there is none, or no page.
func (w *trial) metric(sample string) string {
	w.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: w.lab.Node1.Dial, DisableKeepAlives: true}}
	response, err := client.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
