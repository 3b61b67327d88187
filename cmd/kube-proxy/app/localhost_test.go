//go:build linux

package app

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

const rejectedMetric = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"

// TestKernelLocalhostNodePorts asks for a node port on the loopback addresses, where node1's own servers would answer UDP
// and SCTP: with the feature gate and localhost in the list, TCP is forwarded and the rest rejected and counted; with the gate
// alone, everything is rejected; without it, nothing is touched.
func TestKernelLocalhostNodePorts(t *testing.T) {
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
