//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// localhostService has a node port that is TCP, UDP and SCTP in both families, and an endpoint in node2.
const localhostService = `apiVersion: v1
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

// localhostWorld is a laboratory whose node1 has servers of its own where the node port is, but for TCP.
type localhostWorld struct {
	*testing.T
	lab          *netns.Lab
	program, dir string
}

func newLocalhostWorld(t *testing.T) *localhostWorld {
	t.Helper()
	w := &localhostWorld{T: t, lab: netns.Start(t, netns.Options{}), dir: t.TempDir(), program: filepath.Join(t.TempDir(), "kube-proxy")}
	if out, err := exec.Command("go", "build", "-o", w.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("compile kube-proxy: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "web.yaml"), []byte(localhostService), 0o600); err != nil {
		t.Fatal(err)
	}
	for protocol, hosts := range map[netns.Protocol][]*netns.Host{
		netns.TCP: {w.lab.Node2.Pods[0]}, netns.UDP: {w.lab.Node2.Pods[0], w.lab.Node1.Host}, netns.SCTP: {w.lab.Node2.Pods[0], w.lab.Node1.Host},
	} {
		for _, host := range hosts {
			port := uint16(8080)
			if host == w.lab.Node1.Host {
				port = 30080
			}
			if _, err := host.Serve(protocol, port); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// proxy runs kube-proxy in node1 until the test ends, and waits until it has written its rules.
func (w *localhostWorld) proxy(flags ...string) {
	w.Helper()
	var log bytes.Buffer
	cmd := w.lab.Node1.Command(w.program, append([]string{"--manifests", w.dir, "--proxy-mode", "nftables", "--hostname-override", "node1",
		"--bind-address", w.lab.Node1.IPv4.String(), "--metrics-bind-address", "127.0.0.1:10249"}, flags...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := cmd.Kill(); err != nil {
			w.Error(err)
		}
		if w.Failed() {
			w.Log(log.String())
		}
	})
	for began := time.Now(); w.metric(`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"}`) == ""; {
		if time.Since(began) > patience {
			w.Fatalf("no sync after %s", time.Since(began))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// until asks until the answer is as wanted; it waits for the proxy, which listens a moment after its rules are in force.
func (w *localhostWorld) until(probe netns.Probe, want netns.Verdict, endpoint string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if _, last, err := probe.Until(ctx, func(a netns.Answer) bool { return a.Verdict == want && a.Endpoint == endpoint }); err != nil {
		w.Errorf("%s: want %s %s: %v; the last answer: %s", probe, want, endpoint, err, last)
	}
}

// metric is a sample's value as the proxy's page of metrics shows it; "" if there is none, or no page.
func (w *localhostWorld) metric(sample string) string {
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

const rejectedMetric = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"

// TestKernelLocalhostNodePorts asks for a node port on the loopback addresses, where node1's own servers would answer UDP
// and SCTP: with the feature gate and localhost in the list, TCP is forwarded and the rest rejected and counted; with the gate
// alone, everything is rejected; without it, nothing is touched.
func TestKernelLocalhostNodePorts(t *testing.T) {
	w := newLocalhostWorld(t)
	const gate = "--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true"
	pod, node := w.lab.Node2.Pods[0].Name, w.lab.Node1.Name
	for _, test := range []struct {
		name  string
		flags []string
		tcp   string // who answers TCP; nobody where it is ""
		rest  string // who answers UDP and SCTP
		// counted are packets of TCP and of UDP, for each of those asked; "" where there is no such metric.
		tcpCounted, udpCounted string
	}{
		{"on", []string{gate, "--nodeport-addresses=primary,localhost"}, pod, "", "0", "1"},
		{"alone", []string{gate, "--nodeport-addresses=primary"}, "", "", "1", "2"},
		{"off", []string{"--nodeport-addresses=primary,localhost"}, "", node, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &localhostWorld{T: t, lab: w.lab, program: w.program, dir: w.dir}
			w.proxy(test.flags...)
			for family, loopback := range map[string]string{"IPv4": "127.0.0.1", "IPv6": "::1"} {
				for protocol, endpoint := range map[netns.Protocol]string{netns.TCP: test.tcp, netns.UDP: test.rest, netns.SCTP: test.rest} {
					probe := netns.Probe{From: w.lab.Node1.Host, To: netip.AddrPortFrom(netip.MustParseAddr(loopback), 30080), Protocol: protocol}
					if endpoint != "" {
						w.until(probe, netns.Answered, endpoint)
					} else if answer := probe.Send(); answer.Verdict != netns.Refused {
						t.Errorf("%s: want refused: %s", probe, answer)
					}
				}
				for protocol, want := range map[string]string{"TCP": test.tcpCounted, "UDP": test.udpCounted} {
					sample := rejectedMetric + `{ip_family="` + family + `",protocol="` + protocol + `"}`
					if got := w.metric(sample); got != want {
						t.Errorf("%s is %q, want %q", sample, got, want)
					}
				}
			}
		})
	}
}
