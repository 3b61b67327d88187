package iptables

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// place is one of the places where packets are dispatched by frontend. Each has a tree.
type place int

const (
	natClusterIPs place = iota
	// natOthers holds external and load balancer IPs, and cluster IPs outside the known ServiceCIDRs.
	natOthers
	natNodePorts
	filterClusterIPs
	filterOthers
	filterNodePorts
	// filterRestricted holds load balancer IPs with source ranges.
	filterRestricted
	places
)

// dispatch describes the chains of a place: few, the chain that holds its rules while they are few (see namedChains), and
// the names of its tree's chains otherwise: root, and root, a hyphen and the digits of a path. The names have prefixCluster,
// the only one of a Service's prefixes that both kube-proxy and Calico clean up in the nat table, and are shorter than any hash. After a
// switch to kube-proxy, tree chains of the filter table remain without effect until "iptables -X". A tree has at most nine levels,
// because nf_tables follows at most 16 nested chains.
type dispatch struct {
	table, few, root string
	shape            *shape
}

func dispatches(can capabilities) [places]dispatch {
	addrs := &shape{levels: maxLevels, digit: addrDigit, match: (*writer).addrMatch}
	if can.flat {
		addrs.levels = 0
	}
	ports := &shape{levels: 1 + 16/digitBits, digit: portDigit, match: (*writer).portMatch}
	return [places]dispatch{
		natClusterIPs:    {tableNAT, chainServices, prefixCluster + "IPS", addrs},
		natOthers:        {tableNAT, chainServices, prefixCluster + "XIPS", addrs},
		natNodePorts:     {tableNAT, chainNodePorts, prefixCluster + "PORTS", ports},
		filterClusterIPs: {tableFilter, chainServices, prefixCluster + "IPS", addrs},
		filterOthers:     {tableFilter, chainFirewall, prefixCluster + "XIPS", addrs},
		filterNodePorts:  {tableFilter, chainExternal, prefixCluster + "PORTS", ports},
		filterRestricted: {tableFilter, chainFirewall, prefixCluster + "FROM", addrs},
	}
}

// addrDigit returns bits of an address, the lowest first, because cluster IPs are random or consecutive and differ
// there.
func addrDigit(f plan.Frontend, level int) int {
	bytes := f.Addr.As16()
	at, shift := inByte(level)
	return int(bytes[len(bytes)-1-at]>>shift) & (radix - 1)
}

// inByte returns where the digit of a level of an address is: in which byte from the end, and at which bit.
func inByte(level int) (at, shift int) { return level * digitBits / 8, level * digitBits % 8 }

// addrMatch matches the last digit of a path in the address.
func (w *writer) addrMatch(path []int) []ipt.Match {
	level, digit := len(path)-1, path[len(path)-1]
	value, mask := make([]byte, 16), make([]byte, 16)
	last, shift := inByte(level)
	at := len(value) - 1 - last
	value[at], mask[at] = byte(digit<<shift), byte((radix-1)<<shift)
	return []ipt.Match{ipt.DestinationBits{Addr: w.addr(value), Mask: w.addr(mask)}}
}

// addr returns an address of the family from the last bytes of 16.
func (w *writer) addr(bytes []byte) netip.Addr {
	if w.family == cluster.IPv4 {
		bytes = bytes[len(bytes)-4:]
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// portDigit returns the protocol, then bits of the port, the highest first, because rules match ranges of ports.
func portDigit(f plan.Frontend, level int) int {
	if level == 0 {
		return slices.Index(protocols(), f.Protocol) & (radix - 1)
	}
	return int(f.Port>>(16-digitBits*level)) & (radix - 1)
}

func protocols() []cluster.Protocol {
	return []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}
}

// portMatch matches the protocol, and for longer paths a range of ports.
func (w *writer) portMatch(path []int) []ipt.Match {
	is := protocols()[path[0]]
	if len(path) == 1 {
		return []ipt.Match{protocol(is)}
	}
	low := 0
	for i, digit := range path[1:] {
		low |= digit << (16 - digitBits*(i+1))
	}
	size := 1 << (16 - digitBits*(len(path)-1))
	return []ipt.Match{protocol(is), dport(is, uint16(low), uint16(low+size-1))}
}

// chain returns the name of the chain of a tree's node.
func (d *dispatch) chain(path []int) chainName {
	name := []byte(d.root)
	if len(path) > 0 {
		name = append(name, '-')
	}
	for _, digit := range path {
		name = append(name, "WXYZ"[digit]) // no earlier version used these, so no chain changes its meaning
	}
	return chainName{d.table, string(name)}
}

// inline reports whether a tree's rules are in the chain that leads to it.
func (t *tree) inline() bool { return t == nil || t.branches == nil && t.size <= flat }

// hasChain reports whether the node at a path has a chain of its own.
func hasChain(path []int, t *tree) bool { return t != nil && (len(path) > 0 || !t.inline()) }

// chainOf renders a node's chain. Packets do not return between the chains of a tree, so the search ends at the first miss.
func (w *writer) chainOf(d *dispatch, path []int, t *tree) *chain {
	c := &chain{rank: rankTop - 1 - rank(len(path))}
	if t.branches == nil {
		c.body = t.body()
		return c
	}
	var gotos []ipt.Rule
	for digit, branch := range t.branches {
		if branch != nil {
			below := slices.Concat(path, []int{digit})
			gotos = append(gotos, ipt.Rule{Matches: d.shape.match(w, below), Target: ipt.Goto(d.chain(below).name)})
		}
	}
	c.body = kept(gotos)
	return c
}

// entrance renders the rules that lead to a tree: the tree's own rules while they are few, otherwise a jump for each
// gate. A gate matches all packets that the tree may match.
func (d *dispatch) entrance(t *tree, gates ...ipt.Match) []ipt.Rule {
	if t.inline() {
		return t.body().rules()
	}
	var all []ipt.Rule
	for _, gate := range gates {
		all = append(all, ipt.Rule{Matches: []ipt.Match{gate}, Target: ipt.Jump(d.chain(nil).name)})
	}
	return all
}
