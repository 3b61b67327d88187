package iptables

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// place is one of the places where frontends are told apart. Each has a tree.
type place int

const (
	natClusterIPs place = iota
	// natOthers are external and load balancer addresses, and cluster IPs outside of the known ServiceCIDRs.
	natOthers
	natNodePorts
	filterClusterIPs
	filterOthers
	filterNodePorts
	// filterRestricted are load balancer addresses that only some sources may use.
	filterRestricted
	places
)

// dispatch is how a place looks in chains: where its rules are while they are few, and the names of its tree's chains when
// they are many: root, and root, a hyphen and the digits of a path. They have prefixCluster, so that other programs
// recognise them (docs/decisions/0008), and no hash is as short.
type dispatch struct {
	table, root string
	shape       *shape
}

func dispatches() [places]dispatch {
	addrs := &shape{levels: 8, digit: addrDigit, match: (*writer).addrMatch}
	ports := &shape{levels: 5, digit: portDigit, match: (*writer).portMatch}
	return [places]dispatch{
		natClusterIPs:    {tableNAT, prefixCluster + "IPS", addrs},
		natOthers:        {tableNAT, prefixCluster + "XIPS", addrs},
		natNodePorts:     {tableNAT, prefixCluster + "PORTS", ports},
		filterClusterIPs: {tableFilter, prefixCluster + "IPS", addrs},
		filterOthers:     {tableFilter, prefixCluster + "XIPS", addrs},
		filterNodePorts:  {tableFilter, prefixCluster + "PORTS", ports},
		filterRestricted: {tableFilter, prefixCluster + "FROM", addrs},
	}
}

// addrDigit reads four bits of an address, the lowest first: cluster IPs are random or dense, and differ there.
func addrDigit(f plan.Frontend, level int) int {
	bytes := f.Addr.As16()
	return int(bytes[len(bytes)-1-level/2]>>(4*(level%2))) & (radix - 1)
}

// addrMatch matches the last digit of a path in the address.
func (w *writer) addrMatch(path []int) []match {
	level, digit := len(path)-1, path[len(path)-1]
	value, mask := make([]byte, 16), make([]byte, 16)
	at := len(value) - 1 - level/2
	value[at], mask[at] = byte(digit<<(4*(level%2))), byte((radix-1)<<(4*(level%2)))
	return []match{masked(w.addr(value), w.addr(mask))}
}

// addr makes an address of the family of the last bytes of 16.
func (w *writer) addr(bytes []byte) netip.Addr {
	if w.family == cluster.IPv4 {
		bytes = bytes[len(bytes)-4:]
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// portDigit reads the protocol, then four bits of the port, the highest first, since rules match ranges of ports.
func portDigit(f plan.Frontend, level int) int {
	if level == 0 {
		return slices.Index(protocols(), f.Protocol) & (radix - 1)
	}
	return int(f.Port>>(16-4*level)) & (radix - 1)
}

func protocols() []cluster.Protocol {
	return []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}
}

// portMatch matches the protocol, and a range of ports where the path is that long.
func (w *writer) portMatch(path []int) []match {
	is := protocols()[path[0]]
	if len(path) == 1 {
		return []match{protocol(is)}
	}
	low := 0
	for i, digit := range path[1:] {
		low |= digit << (12 - 4*i)
	}
	size := 1 << (20 - 4*len(path))
	return []match{protocol(is), dport(is, uint16(low), uint16(low+size-1))}
}

// chain is the name of the chain of a tree's node.
func (d *dispatch) chain(path []int) chainName {
	name := []byte(d.root)
	if len(path) > 0 {
		name = append(name, '-')
	}
	for _, digit := range path {
		name = fmt.Appendf(name, "%X", digit)
	}
	return chainName{d.table, string(name)}
}

// inline reports whether a tree's rules are in the chain that leads to it.
func (t *tree) inline() bool { return t == nil || t.branches == nil && t.size <= leaf }

// hasChain reports whether the node at a path has a chain of its own.
func hasChain(path []int, t *tree) bool { return t != nil && (len(path) > 0 || !t.inline()) }

// chainOf renders a node's chain. Between the chains of a tree packets never return: a miss ends the search.
func (w *writer) chainOf(d *dispatch, path []int, t *tree) *chain {
	c := &chain{rank: rankTop - 1 - rank(len(path))}
	if t.branches == nil {
		c.lines = t.lines()
		return c
	}
	for digit, branch := range t.branches {
		if branch != nil {
			below := slices.Concat(path, []int{digit})
			c.lines = append(c.lines, rule{matches: d.shape.match(w, below), target: goTo(d.chain(below).name)}.line())
		}
	}
	return c
}

// entrance renders what leads to a tree: its rules themselves while they are few, or one jump for each gate. A gate is a
// match that all of the tree's packets pass.
func (d *dispatch) entrance(t *tree, gates ...match) []line {
	if t.inline() {
		return t.lines()
	}
	var all []line
	for _, gate := range gates {
		all = append(all, lines(rule{matches: []match{gate}, target: jump(d.chain(nil).name)})...)
	}
	return all
}
