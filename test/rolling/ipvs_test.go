//go:build linux

package rolling

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// byHand makes node1 serve the Services as Kubernetes' kube-proxy does in ipvs mode.
func (w *world) byHand() {
	w.Helper()
	var s strings.Builder
	s.WriteString("set -e\nfor x in conntrack expire_nodest_conn expire_quiescent_template; do sysctl -q -w net.ipv4.vs.$x=1; done\n/sbin/ip link add kube-ipvs0 type dummy\n")
	for i, family := range netns.Families() {
		prefix, program, setFamily := "KUBE-", "iptables", "inet"
		if family == netns.IPv6 {
			prefix, program, setFamily = "KUBE-6-", "ip6tables", "inet6"
		}
		fmt.Fprintf(&s, `ipset create %[1]sCLUSTER-IP hash:ip,port family %[3]s
for p in TCP UDP; do ipset create %[1]sNODE-PORT-$p bitmap:port range 0-65535; done
ipset create %[1]sNODE-PORT-SCTP-HASH hash:ip,port family %[3]s
nat() { %[2]s -w -t nat "$@"; }
for c in SERVICES POSTROUTING MARK-MASQ; do nat -N KUBE-$c; done
nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
nat -A KUBE-POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully
nat -A KUBE-SERVICES -m set --match-set %[1]sCLUSTER-IP src,dst -j KUBE-MARK-MASQ
for c in PREROUTING OUTPUT; do nat -A $c -j KUBE-SERVICES; done; nat -A POSTROUTING -j KUBE-POSTROUTING
`, prefix, program, setFamily)
		node := w.lab.Node1.Addr(family)
		for _, service := range services {
			w.virtual(&s, family, service.clusterIPs[i], service.local, "")
			fmt.Fprintf(&s, "for p in tcp udp sctp; do ipset add %sCLUSTER-IP %s,$p:%d; done\n", prefix, service.clusterIPs[i], servicePort)
			fmt.Fprintf(&s, "for p in TCP UDP; do ipset add %sNODE-PORT-$p %d; done\n", prefix, service.nodePort)
			fmt.Fprintf(&s, "ipset add %sNODE-PORT-SCTP-HASH %s,sctp:%d\n", prefix, node, service.nodePort)
			w.servers(&s, netip.AddrPortFrom(node, uint16(service.nodePort)), family, service.local, "")
			if !service.local {
				fmt.Fprintf(&s, "for p in tcp udp sctp; do nat -A KUBE-SERVICES -d %s -p $p --dport %d -j KUBE-MARK-MASQ; done\n", node, service.nodePort)
			}
		}
		const persistent = "-p 10800"
		w.virtual(&s, family, balanced.clusterIPs[i], false, persistent)
		w.virtual(&s, family, balanced.ingress[i], false, persistent)
		fmt.Fprintf(&s, "nat -A KUBE-SERVICES -d %s -j KUBE-MARK-MASQ\n", balanced.ingress[i])
	}
	w.node(s.String())
}

// virtual writes commands that add an address of a Service to the device, with virtual servers.
func (w *world) virtual(s *strings.Builder, family netns.Family, ip string, local bool, options string) {
	addr := netip.MustParseAddr(ip)
	nodad := ""
	if addr.Is6() {
		nodad = "nodad"
	}
	fmt.Fprintf(s, "/sbin/ip addr add %s/%d dev kube-ipvs0 %s\n", addr, addr.BitLen(), nodad)
	w.servers(s, netip.AddrPortFrom(addr, servicePort), family, local, options)
}

// servers writes commands that add virtual servers whose destinations are all pods, or those of node1.
func (w *world) servers(s *strings.Builder, at netip.AddrPort, family netns.Family, local bool, options string) {
	for _, protocol := range []string{"-t", "-u", "--sctp-service"} {
		fmt.Fprintf(s, "ipvsadm -A %s %s -s rr %s\n", protocol, at, options)
		for _, p := range slices.DeleteFunc(slices.Clone(w.pods), func(p *pod) bool { return local && p.node != "node1" }) {
			fmt.Fprintf(s, "ipvsadm -a %s %s -r %s -m\n", protocol, at, netip.AddrPortFrom(p.Addr(family), endpointPort))
		}
	}
}
