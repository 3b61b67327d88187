package cases

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// host is a host of the lab (test/netns).
type host struct {
	name string
	// addrs are its addresses in IPv4 and IPv6; arrives is the interface of node1 that receives its packets.
	addrs   [2]netip.Addr
	arrives string
}

var hosts = []host{
	{"client", addrs("172.18.0.100", "fd00:172:18::64"), "eth0"},
	{"node1", addrs("172.18.0.11", "fd00:172:18::b"), ""},
	{"node2", addrs("172.18.0.12", "fd00:172:18::c"), "eth0"},
	{"pod1a", addrs("10.244.1.2", "fd00:10:244:1::2"), "cbr0"},
	{"pod1b", addrs("10.244.1.3", "fd00:10:244:1::3"), "cbr0"},
	{"pod2a", addrs("10.244.2.2", "fd00:10:244:2::2"), "eth0"},
	{"pod2b", addrs("10.244.2.3", "fd00:10:244:2::3"), "eth0"},
}

func addrs(v4, v6 string) [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
}

// hostNamed returns the host with that name, or the zero host if there is none.
func hostNamed(name string) host {
	at := slices.IndexFunc(hosts, func(h host) bool { return h.name == name })
	if at < 0 {
		return host{}
	}
	return hosts[at]
}

// Address returns the address of the lab's host with that name in a family; invalid if there is no such host.
func Address(name string, family cluster.Family) netip.Addr {
	if family == cluster.IPv6 {
		return hostNamed(name).addrs[1]
	}
	return hostNamed(name).addrs[0]
}

// Arrives returns the interface of node1 that receives packets of the host with that name; empty for node1 itself.
func Arrives(name string) string { return hostNamed(name).arrives }

// nameOf returns the name of the host with an address, or the address itself.
func nameOf(addr netip.Addr) string {
	at := slices.IndexFunc(hosts, func(h host) bool { return slices.Contains(h.addrs[:], addr) })
	if at < 0 {
		return addr.String()
	}
	return hosts[at].name
}

// Explain returns the result of a packet according to the plan, in the form of a Packet.
func (c *Case) Explain(p *plan.Plan, question Packet) Packet {
	from := hostNamed(question.From)
	source := from.addrs[0]
	if cluster.FamilyOf(question.To.Addr()) == cluster.IPv6 {
		source = from.addrs[1]
	}
	if from.name == Node && slices.Contains(c.NodeAddresses, question.To.Addr()) {
		source = question.To.Addr() // for a local address the kernel chooses the same source
	}
	path := p.Explain(plan.Packet{Source: source, Interface: from.arrives, To: question.To, Protocol: question.Protocol})
	answer := Packet{Line: question.Line, From: question.From, To: question.To, Protocol: question.Protocol, Verdict: path.Verdict,
		AtSend: question.AtSend, Except: question.Except}
	if path.Verdict != plan.Balance {
		return answer
	}
	if path.Route.Affinity != nil || path.Pool.By() == cluster.SourceHash {
		answer.Choice = OneOf
		if question.Choice == TheSame { // not in the plan; only the kernel tests check this
			answer.Choice = TheSame
		}
	}
	for _, endpoint := range path.Pool.Endpoints {
		answer.Endpoints = append(answer.Endpoints, nameOf(endpoint.Addr()))
	}
	slices.Sort(answer.Endpoints)
	answer.SeenAs = question.From
	if path.Masqueraded {
		answer.SeenAs = Node
	}
	return answer
}
