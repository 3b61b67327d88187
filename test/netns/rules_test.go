//go:build linux

package netns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// virtual returns the virtual address of these tests: no host has it, and the client has a route to it via node1.
func virtual(family Family) netip.Addr {
	if family == IPv6 {
		return netip.MustParseAddr("2001:db8::1")
	}
	return netip.MustParseAddr("198.51.100.1")
}

func routesToVirtual() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(virtual(IPv4), 32), netip.PrefixFrom(virtual(IPv6), 128)}
}

// nft loads rules into a host.
func nft(t *testing.T, host *Host, rules string) {
	t.Helper()
	command := host.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(rules)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, output)
	}
}

// serveAll starts servers on the ports of every pod, for every protocol.
func serveAll(t *testing.T, lab *Lab, ports ...uint16) {
	t.Helper()
	for _, node := range lab.Nodes() {
		for _, pod := range node.Pods {
			for _, protocol := range Protocols() {
				if _, err := pod.Serve(protocol, ports...); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestOracle checks the probes with hand-written rules of known effect, from every
// kind of host, in both families, with every protocol and both pod networks.
func TestOracle(t *testing.T) {
	t.Parallel()
	Require(t, "nft")
	for _, network := range []PodNetwork{Bridged, Routed} {
		t.Run([]string{"bridged", "routed"}[network], func(t *testing.T) {
			lab := Start(t, Options{PodNetwork: network, ClientRoutes: routesToVirtual()})
			serveAll(t, lab, 8080)
			for _, family := range Families() {
				nft(t, lab.Node1.Host, oracleRules(lab, family))
				for _, protocol := range Protocols() {
					t.Run(fmt.Sprintf("%v %s", family, protocol), func(t *testing.T) {
						oracle(t, lab, family, protocol, network)
					})
				}
			}
		})
	}
}

// oracleRules returns rules that treat each port of the virtual address differently.
func oracleRules(lab *Lab, family Family) string {
	ip, admin, host := "ip", "icmp type admin-prohibited", "icmp type host-unreachable"
	if family == IPv6 {
		ip, admin, host = "ip6", "icmpv6 type admin-prohibited", "icmpv6 type addr-unreachable"
	}
	to := func(pod *Host) string { return netip.AddrPortFrom(pod.Addr(family), 8080).String() }
	one, two := lab.Node1.Pods, lab.Node2.Pods
	spread := fmt.Sprintf("numgen inc mod 4 map { 0 : %v, 1 : %v, 2 : %v, 3 : %v }:8080",
		one[0].Addr(family), one[1].Addr(family), two[0].Addr(family), two[1].Addr(family))
	nat := func(port int, target string) string {
		return fmt.Sprintf("meta l4proto { tcp, udp, sctp } th dport %d dnat to %s\n", port, target)
	}
	translate := "th dport 81-83 meta mark set 1\n" + nat(80, to(one[0])) + nat(81, to(two[0])) + nat(82, spread) + nat(83, to(one[0]))
	refuse := `th dport 90 reject
		th dport 91 drop
		tcp dport 92 reject with tcp reset
		th dport 93 reject with ` + admin + `
		th dport 94 reject with ` + host + "\n"
	return fmt.Sprintf(`table %[1]s oracle {
	chain vip { %[3]s }
	chain no { %[4]s }
	chain prerouting { type nat hook prerouting priority -100; %[1]s daddr %[2]v jump vip; }
	chain output { type nat hook output priority -100; %[1]s daddr %[2]v jump vip; }
	chain forward { type filter hook forward priority 0; %[1]s daddr %[2]v jump no; }
	chain local { type filter hook output priority 0; %[1]s daddr %[2]v jump no; }
	chain postrouting { type nat hook postrouting priority 100; meta mark 1 masquerade; }
}
`, ip, virtual(family), translate, refuse)
}

// oracle sends probes to each port from each kind of host.
func oracle(t *testing.T, lab *Lab, family Family, protocol Protocol, network PodNetwork) {
	client, node, pod, neighbour := lab.Client, lab.Node1.Host, lab.Node1.Pods[0], lab.Node1.Pods[1]
	uplink := node.Addr(family)
	onNode := uplink // the node's address on the side of its pods
	if network == Bridged {
		onNode = nth(lab.Node1.PodCIDRs[slices.Index(Families(), family)], 1)
	}
	port := ICMP{Type: 3, Code: 3, From: uplink}
	admin, unreachable := ICMP{Type: 3, Code: 13, From: uplink}, ICMP{Type: 3, Code: 1, From: uplink}
	if family == IPv6 {
		port = ICMP{Type: 1, Code: 4, From: uplink}
		admin, unreachable = ICMP{Type: 1, Code: 1, From: uplink}, ICMP{Type: 1, Code: 3, From: uplink}
	}
	cases := []struct {
		what     string
		from     *Host
		port     uint16
		verdict  Verdict
		endpoint string
		source   netip.Addr
		icmp     ICMP
	}{
		{"source kept", client, 80, Answered, "pod1a", client.Addr(family), ICMP{}},
		{"source kept across the bridge", neighbour, 80, Answered, "pod1a", neighbour.Addr(family), ICMP{}},
		{"the node's own", node, 80, Answered, "pod1a", uplink, ICMP{}},
		{"masqueraded to the other node", client, 81, Answered, "pod2a", uplink, ICMP{}},
		{"masqueraded to the other node", pod, 81, Answered, "pod2a", uplink, ICMP{}},
		{"the node's own to the other node", node, 81, Answered, "pod2a", uplink, ICMP{}},
		{"masqueraded to a local pod", client, 83, Answered, "pod1a", onNode, ICMP{}},
		{"hairpin", pod, 83, Answered, "pod1a", onNode, ICMP{}},
		{"reject", client, 90, Refused, "", netip.Addr{}, port},
		{"reject", pod, 90, Refused, "", netip.Addr{}, withSender(port, onNode)},
		{"reject of the node's own", node, 90, Refused, "", netip.Addr{}, port},
		{"drop", client, 91, Dropped, "", netip.Addr{}, ICMP{}},
		{"drop", pod, 91, Dropped, "", netip.Addr{}, ICMP{}},
		{"drop of the node's own", node, 91, Dropped, "", netip.Addr{}, ICMP{}},
		{"admin prohibited", client, 93, Refused, "", netip.Addr{}, admin},
		{"admin prohibited to the node", node, 93, Refused, "", netip.Addr{}, admin},
		{"host unreachable", client, 94, Unreachable, "", netip.Addr{}, unreachable},
		{"host unreachable to the node", node, 94, Unreachable, "", netip.Addr{}, unreachable},
		{"no rule at all", client, 99, Dropped, "", netip.Addr{}, ICMP{}},
		{"no rule at all", node, 99, Dropped, "", netip.Addr{}, ICMP{}},
	}
	var probes []Probe
	for _, c := range cases {
		probes = append(probes, Probe{From: c.from, To: netip.AddrPortFrom(virtual(family), c.port), Protocol: protocol})
	}
	for i, got := range SendAll(probes...) {
		want := cases[i]
		if got.Verdict != want.verdict || got.Endpoint != want.endpoint || got.Source.Addr() != want.source || got.ICMP != want.icmp {
			t.Errorf("%s: %v: %v; want %v by %q, source %v, %v", want.what, probes[i], got, want.verdict, want.endpoint, want.source, want.icmp)
		}
		if endpoint, err := lab.Host(want.endpoint); err == nil && got.Reached != netip.AddrPortFrom(endpoint.Addr(family), 8080) {
			t.Errorf("%s: %v reached %v", want.what, probes[i], got.Reached)
		}
	}
	if protocol == TCP {
		reset := Probe{From: client, To: netip.AddrPortFrom(virtual(family), 92)}.Send()
		if reset.Verdict != Refused || reset.ICMP != (ICMP{}) {
			t.Errorf("a TCP reset was reported as %v", reset)
		}
	}
	spread := Probe{From: client, To: netip.AddrPortFrom(virtual(family), 82), Protocol: protocol}.Spread(400)
	for _, name := range []string{"pod1a", "pod1b", "pod2a", "pod2b"} {
		if spread.Endpoints[name] != 100 {
			t.Errorf("want every fourth connection at each of four pods, got %v", spread)
			break
		}
	}
}

// withSender returns the ICMP error with another sender.
func withSender(icmp ICMP, from netip.Addr) ICMP {
	icmp.From = from
	return icmp
}
