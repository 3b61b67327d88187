//go:build linux

package main

import (
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// service is a service of examples/ with its checks.
type service struct {
	name, about string
	checks      []check
}

// check is a line of the table: a client, an address, and the expected result. It is checked in both families.
type check struct {
	from string
	// way is the kind of address, to the address in IPv4 and IPv6.
	way      string
	protocol netns.Protocol
	to       [2]netip.AddrPort
	want     want
}

// want is the expected result of every connection.
type want struct {
	verdict netns.Verdict
	// pods are expected to share the connections evenly, at this port.
	pods []string
	port uint16
	// seenAs is the host that the pods see as the source. A pod that connects to itself always sees node1: it could not
	// answer a packet from its own address.
	seenAs string
}

func answered(port uint16, seenAs string, pods ...string) want {
	return want{verdict: netns.Answered, pods: pods, port: port, seenAs: seenAs}
}

func refused() want { return want{verdict: netns.Refused} }
func dropped() want { return want{verdict: netns.Dropped} }

// at returns an address and port in both families.
func at(ipv4, ipv6 string) [2]netip.AddrPort {
	return [2]netip.AddrPort{netip.MustParseAddrPort(ipv4), netip.MustParseAddrPort(ipv6)}
}

// targets returns the target ports of the shop's services.
func targets(protocol netns.Protocol) []uint16 {
	return map[netns.Protocol][]uint16{
		netns.TCP:  {8080, 8443, 6379, 9200, 5353},
		netns.UDP:  {5353, 1514},
		netns.SCTP: {5060},
	}[protocol]
}

// shop returns the table of all checks: the documented behaviour of examples/.
func shop() []service {
	const tcp, udp, sctp = netns.TCP, netns.UDP, netns.SCTP
	const clusterIP, nodePort, loadBalancer = "cluster IP", "node port", "load balancer"
	return []service{
		{"frontend", "four pods share the load; external clients are masqueraded, so that answers return through node1", []check{
			{"pod1a", clusterIP, tcp, at("10.96.0.80:80", "[fd00:10:96::80]:80"), answered(8080, "pod1a", "pod1a", "pod1b", "pod2a", "pod2b")},
			{"node1", clusterIP, tcp, at("10.96.0.80:80", "[fd00:10:96::80]:80"), answered(8080, "node1", "pod1a", "pod1b", "pod2a", "pod2b")},
			{"client", nodePort, tcp, at("172.18.0.11:30080", "[fd00:172:18::b]:30080"), answered(8080, "node1", "pod1a", "pod1b", "pod2a", "pod2b")},
			{"client", loadBalancer, tcp, at("192.0.2.80:80", "[2001:db8::80]:80"), answered(8080, "node1", "pod1a", "pod1b", "pod2a", "pod2b")},
		}},
		{"checkout", "externalTrafficPolicy Local: external clients use this node's pods, which see the client's address", []check{
			{"client", nodePort, tcp, at("172.18.0.11:30443", "[fd00:172:18::b]:30443"), answered(8443, "client", "pod1b")},
			{"client", loadBalancer, tcp, at("192.0.2.43:443", "[2001:db8::43]:443"), answered(8443, "client", "pod1b")},
			{"pod1a", loadBalancer, tcp, at("192.0.2.43:443", "[2001:db8::43]:443"), answered(8443, "pod1a", "pod1b", "pod2b")},
		}},
		{"reports", "the same policy, but no pod on this node: external clients are dropped, pods are served", []check{
			{"client", loadBalancer, tcp, at("192.0.2.90:80", "[2001:db8::90]:80"), dropped()},
			{"pod1a", loadBalancer, tcp, at("192.0.2.90:80", "[2001:db8::90]:80"), answered(8080, "pod1a", "pod2a")},
		}},
		{"search", "its only pod is not ready: refused at once, without a timeout", []check{
			{"pod1b", clusterIP, tcp, at("10.96.0.92:9200", "[fd00:10:96::92]:9200"), refused()},
			{"client", nodePort, tcp, at("172.18.0.11:30092", "[fd00:172:18::b]:30092"), refused()},
		}},
		{"cart", "one pod, which connects to its own Service (hairpin)", []check{
			{"pod1a", clusterIP, tcp, at("10.96.0.63:6379", "[fd00:10:96::63]:6379"), answered(6379, "pod1a", "pod1a")},
		}},
		{"logs", "internalTrafficPolicy Local: only the collector of this node", []check{
			{"pod1a", clusterIP, udp, at("10.96.0.14:514", "[fd00:10:96::14]:514"), answered(1514, "pod1a", "pod1b")},
		}},
		{"dns", "UDP and TCP on the same port number", []check{
			{"pod1b", clusterIP, udp, at("10.96.0.53:53", "[fd00:10:96::53]:53"), answered(5353, "pod1b", "pod1a", "pod2a")},
			{"pod1b", clusterIP, tcp, at("10.96.0.53:53", "[fd00:10:96::53]:53"), answered(5353, "pod1b", "pod1a", "pod2a")},
		}},
		{"phone", "SCTP", []check{
			{"pod1a", clusterIP, sctp, at("10.96.0.60:5060", "[fd00:10:96::60]:5060"), answered(5060, "pod1a", "pod1b", "pod2b")},
			{"client", nodePort, sctp, at("172.18.0.11:30060", "[fd00:172:18::b]:30060"), answered(5060, "node1", "pod1b", "pod2b")},
		}},
	}
}
