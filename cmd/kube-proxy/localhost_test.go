//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const rejectedMetric = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"

// TestKernelLocalhostNodePorts asks for a node port on the loopback addresses, where node1's own servers would answer UDP
// and SCTP: with the feature gate and localhost in the list, TCP is forwarded and the rest rejected and counted; with the gate
// alone, everything is rejected; without it, nothing is touched.
func TestKernelLocalhostNodePorts(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	w.serve(w.lab.Node1.Host, netns.UDP, 30080)
	w.serve(w.lab.Node1.Host, netns.SCTP, 30080)
	const gate = "--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true"
	pod, node := w.endpoint().Name, w.lab.Node1.Name
	for _, test := range []struct {
		name  string
		flags []string
		tcp   string // who answers TCP; "" if nobody does
		rest  string // who answers UDP and SCTP
		// counted are the packets of TCP and of UDP that the metric counts at least, or 0 if none: the kernel may send one
		// twice. It is -1 where there is no such metric.
		tcpCounted, udpCounted int
	}{
		{"on", []string{gate, "--nodeport-addresses=primary,localhost"}, pod, "", 0, 1},
		{"alone", []string{gate, "--nodeport-addresses=primary"}, "", "", 1, 2},
		{"off", []string{"--nodeport-addresses=primary,localhost"}, "", node, -1, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			w.proxy(config.ProxyModeNFTables, test.flags...)
			for family, loopback := range map[string]string{"IPv4": "127.0.0.1", "IPv6": "::1"} {
				for protocol, endpoint := range map[netns.Protocol]string{netns.TCP: test.tcp, netns.UDP: test.rest, netns.SCTP: test.rest} {
					probe := netns.Probe{From: w.lab.Node1.Host, To: netip.AddrPortFrom(netip.MustParseAddr(loopback), 30080), Protocol: protocol}
					if endpoint != "" {
						w.until(probe, netns.Answered, endpoint)
					} else if answer := probe.Send(); answer.Verdict != netns.Refused {
						t.Errorf("%s: want refused: %s", probe, answer)
					}
				}
				for protocol, want := range map[string]int{"TCP": test.tcpCounted, "UDP": test.udpCounted} {
					sample := rejectedMetric + `{ip_family="` + family + `",protocol="` + protocol + `"}`
					got, err := strconv.Atoi(w.metric(sample))
					if err != nil {
						got = -1
					}
					if got < want || want <= 0 && got != want {
						t.Errorf("%s is %d, want %d", sample, got, want)
					}
				}
			}
		})
	}
}

// TestKernelLocalhostNodePortsRouted asks for a node port on the loopback addresses in iptables mode, where the kernel routes
// them in IPv4, unless a flag says no.
func TestKernelLocalhostNodePortsRouted(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	for _, on := range []bool{false, true} { // what lets them be routed stays
		t.Run(strconv.FormatBool(on), func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			w.proxy(config.ProxyModeIPTables, "--iptables-localhost-nodeports="+strconv.FormatBool(on))
			for _, loopback := range []string{"127.0.0.1", "::1"} {
				for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
					to := netip.AddrPortFrom(netip.MustParseAddr(loopback), 30080)
					probe := netns.Probe{From: w.lab.Node1.Host, To: to, Protocol: protocol}
					want, endpoint := netns.Refused, ""
					if on && to.Addr().Is4() {
						want, endpoint = netns.Answered, w.endpoint().Name
					}
					if answer := probe.Send(); answer.Verdict != want || answer.Endpoint != endpoint {
						t.Errorf("%s: %s, want %s %s", probe, answer, want, endpoint)
					}
				}
			}
		})
	}
}

// onNodePort returns a Service with a TCP node port, and its endpoints in both families.
func onNodePort(name string, port uint16, affinity string, endpoints ...*netns.Host) string {
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec:
  type: NodePort
  sessionAffinity: %s
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  clusterIPs: [10.96.1.%[3]d, "fd00:10:96::1:%[3]d"]
  ports: [{port: 9000, nodePort: %[4]d}]
`, name, affinity, port%100, port)
	for _, family := range netns.Families() {
		var addrs []string
		for _, host := range endpoints {
			addrs = append(addrs, fmt.Sprintf("{addresses: [%q], nodeName: node%c}", host.Addr(family), host.Name[len("pod")]))
		}
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]d, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: "", port: 8080}]
endpoints: [%[4]s]
`, name, int(family), family, strings.Join(addrs, ", "))
	}
	return text
}

// TestKernelLocalhostNodePortsSpecs checks what Kubernetes' specs [Feature:LocalhostNodePorts] of 1.37 check, in both modes: TCP
// connections of the node to a node port on localhost reach endpoints on this and on another node, one endpoint only with session
// affinity, and one that is only on another node, as a registry of images may be.
func TestKernelLocalhostNodePortsSpecs(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	near, far := w.lab.Node1.Pods, w.lab.Node2.Pods
	for _, host := range []*netns.Host{near[0], near[1], far[1]} {
		w.serve(host, netns.TCP, 8080)
	}
	objects := strings.Join([]string{
		onNodePort("spread", 30081, "None", near[0], far[0]),
		onNodePort("sticky", 30082, "ClientIP", near[0], near[1], far[0]),
		onNodePort("registry", 30083, "None", far[1]),
	}, "---\n")
	if err := os.WriteFile(filepath.Join(w.dir, "web.yaml"), []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		mode      config.ProxyMode
		flags     []string
		addresses []string // iptables mode never serves ::1
	}{
		{config.ProxyModeNFTables, []string{"--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true", "--nodeport-addresses=localhost"}, []string{"127.0.0.1", "::1"}},
		{config.ProxyModeIPTables, nil, []string{"127.0.0.1"}},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			w := &trial{T: t, lab: w.lab, program: w.program, dir: w.dir}
			w.proxy(test.mode, test.flags...)
			for _, loopback := range test.addresses {
				for port, want := range map[uint16][]string{30081: {near[0].Name, far[0].Name}, 30082: nil, 30083: {far[1].Name}} {
					probe := netns.Probe{From: w.lab.Node1.Host, To: netip.AddrPortFrom(netip.MustParseAddr(loopback), port)}
					got, sticky := w.spread(probe), want == nil
					if sticky && len(got) != 1 || !sticky && !slices.Equal(got, want) {
						t.Errorf("%s: answered by %v, want %v (a single one with session affinity: %t)", probe, got, want, sticky)
					}
				}
			}
		})
	}
}

// spread sends a probe again and again, from when it is answered for the first time, and returns the endpoints that answer.
func (w *trial) spread(probe netns.Probe) []string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if _, _, err := probe.Until(ctx, func(a netns.Answer) bool { return a.Verdict == netns.Answered }); err != nil {
		w.Fatal(err)
	}
	tally := probe.Spread(64)
	if tally.Failed() > 0 {
		w.Errorf("%s: %s; the first failure: %s", probe, tally, tally.Failures[0])
	}
	var names []string
	for name := range tally.Endpoints {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
