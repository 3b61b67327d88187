package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

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

// dispatch is how a place looks in chains: where its rules stand while they are few, and what the chains of its tree are
// called when they are many. These names begin with KUBE-SVC- for others to recognise (docs/decisions), and have another
// hyphen, which no hash has.
type dispatch struct {
	table, parent, stem string
	shape               *shape
}

// leaf keeps a small ruleset flat, and one of 10,000 frontends at two levels: some 50 rules to try.
const leaf = 64

func dispatches() [places]dispatch {
	addrs := &shape{leaf: leaf, levels: 8, digit: addrDigit}
	ports := &shape{leaf: leaf, levels: 5, digit: portDigit}
	return [places]dispatch{
		natClusterIPs:    {table: tableNAT, parent: chainServices, stem: "KUBE-SVC-IPS-", shape: addrs},
		natOthers:        {table: tableNAT, parent: chainServices, stem: "KUBE-SVC-XIPS-", shape: addrs},
		natNodePorts:     {table: tableNAT, parent: chainNodePorts, stem: "KUBE-SVC-PORTS-", shape: ports},
		filterClusterIPs: {table: tableFilter, parent: chainServices, stem: "KUBE-SVC-IPS-", shape: addrs},
		filterOthers:     {table: tableFilter, parent: chainExternal, stem: "KUBE-SVC-XIPS-", shape: addrs},
		filterNodePorts:  {table: tableFilter, parent: chainExternal, stem: "KUBE-SVC-PORTS-", shape: ports},
		filterRestricted: {table: tableFilter, parent: chainFirewall, stem: "KUBE-SVC-FROM-", shape: addrs},
	}
}

// addrDigit reads four bits of an address, the lowest first: cluster IPs are random or dense, and differ there.
func addrDigit(f plan.Frontend, level int) int {
	bytes := f.Addr.As16()
	return int(bytes[len(bytes)-1-level/2]>>(4*(level%2))) & (radix - 1)
}

// portDigit reads the protocol, then four bits of the port, the highest first, since rules match ranges of ports.
func portDigit(f plan.Frontend, level int) int {
	if level == 0 {
		return protocolDigit(f.Protocol)
	}
	return int(f.Port>>(16-4*level)) & (radix - 1)
}

func protocolDigit(p cluster.Protocol) int {
	for digit, known := range protocols() {
		if p == known {
			return digit
		}
	}
	return radix - 1
}

func protocols() []cluster.Protocol {
	return []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}
}

// match renders what a node's packets have in common beyond those of the node above it.
func (w *writer) match(s *shape, path []int) string {
	level, digit := len(path)-1, path[len(path)-1]
	if s.levels == 8 {
		value, mask := make([]byte, 16), make([]byte, 16)
		at := len(value) - 1 - level/2
		value[at], mask[at] = byte(digit<<(4*(level%2))), byte((radix-1)<<(4*(level%2)))
		return "-d " + w.addr(value) + "/" + w.addr(mask)
	}
	protocol := protocols()[path[0]]
	if level == 0 {
		return "-p " + protocolName(protocol)
	}
	low := 0
	for i, digit := range path[1:] {
		low |= digit << (12 - 4*i)
	}
	return "-p " + protocolName(protocol) + dport(protocol, uint16(low), uint16(low+1<<(16-4*level)-1))
}

// addr renders the last bytes of 16 as an address of the family.
func (w *writer) addr(bytes []byte) string {
	if w.family == cluster.IPv4 {
		bytes = bytes[len(bytes)-4:]
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr.String()
}

// nodeChain names the chain of a tree's node.
func (d *dispatch) nodeChain(path []int) chainName {
	name := strings.TrimSuffix(d.stem, "-")
	if len(path) > 0 {
		name = d.stem
	}
	for _, digit := range path {
		name += fmt.Sprintf("%X", digit)
	}
	return chainName{d.table, name}
}

// inline tells whether a tree's rules stand in the parent.
func (d *dispatch) inline(t *tree) bool { return t.branchless() && t.len() <= d.shape.leaf }

func (t *tree) branchless() bool { return t == nil || t.branches == nil }

// hasChain tells whether a node has a chain of its own.
func (d *dispatch) hasChain(path []int, t *tree) bool {
	return t != nil && (len(path) > 0 || !d.inline(t))
}

// nodeLines renders a node's chain. Between the chains of a tree packets never return: a miss ends the search.
func (w *writer) nodeLines(d *dispatch, path []int, t *tree) []line {
	if t.branchless() {
		return t.lines()
	}
	var lines []line
	for digit, branch := range t.branches {
		if branch != nil {
			below := slices.Concat(path, []int{digit})
			lines = append(lines, line{text: w.match(d.shape, below) + " -g " + d.nodeChain(below).name})
		}
	}
	return lines
}

// inParent renders what stands in the parent: the rules themselves, or one jump to the tree for each gate. A gate is a
// match that all of the tree's packets pass.
func (w *writer) inParent(d *dispatch, t *tree, gates ...string) []line {
	if t.len() == 0 {
		return nil
	}
	if d.inline(t) {
		return t.lines()
	}
	var lines []line
	for _, gate := range gates {
		lines = append(lines, line{text: gate + "-j " + d.nodeChain(nil).name})
	}
	return lines
}

// entries renders the rules of one frontend, in every place that it has some.
func (w *writer) entries(r *plan.Route) (rules [places][]line) {
	f, owner := r.Frontend, keyOf(r).String()
	protocol, port := "-p "+protocolName(f.Protocol), dport(f.Protocol, f.Port)
	match := func(what string) string { return protocol + comment(r.Name+what) + port }
	to := ""
	if !f.IsNodePort() {
		to = "-d " + host(f.Addr) + " "
	}
	if served(r) {
		at := natOthers
		switch {
		case f.IsNodePort():
			at = natNodePorts
		case r.Kind == plan.ClusterIP && w.inServiceCIDR(f.Addr):
			at = natClusterIPs
		}
		what := map[plan.Kind]string{plan.ClusterIP: " cluster IP", plan.ExternalIP: " external IP",
			plan.LoadBalancerIP: " loadbalancer IP"}[r.Kind]
		rules[at] = []line{{to + match(what) + " -j " + goesTo(r), owner}}
	}
	if len(r.SourceRanges) > 0 {
		rules[filterRestricted] = w.restricted(r, to+protocol, match(" from elsewhere"))
	}
	if refusal := w.refusal(r.Verdict); refusal != "" {
		what := " has no endpoints"
		if r.Reason() == plan.NoLocalEndpoints {
			what = " has no local endpoints"
		}
		switch {
		case f.IsNodePort():
			for _, on := range w.onNode() {
				rules[filterNodePorts] = append(rules[filterNodePorts], line{on.address + protocol + comment(r.Name+what) + on.local + port + refusal, owner})
			}
		case r.Kind == plan.ClusterIP:
			rules[filterClusterIPs] = []line{{to + match(what) + refusal, owner}}
		default:
			rules[filterOthers] = []line{{to + match(what) + refusal, owner}}
		}
	}
	return rules
}

// restricted renders the drop of whoever is not let in. Those who are were translated before, unless there is no endpoint:
// they go on to be refused.
func (w *writer) restricted(r *plan.Route, head, match string) []line {
	owner := keyOf(r).String()
	var lines []line
	if r.Verdict == plan.Reject {
		for _, from := range r.SourceRanges {
			lines = append(lines, line{source(from) + head + dport(r.Frontend.Protocol, r.Frontend.Port) + " -j RETURN", owner})
		}
	}
	return append(lines, line{"-d " + host(r.Frontend.Addr) + " " + match + " -j DROP", owner})
}

// refusal is the target of connections that no endpoint takes; empty where there is always one.
func (w *writer) refusal(v plan.Verdict) string {
	switch v {
	case plan.Reject:
		return " -j REJECT --reject-with " + w.reject
	case plan.Drop:
		return " -j DROP"
	default:
		return ""
	}
}

// inServiceCIDR tells whether an address is in the ranges of cluster IPs, where they are known.
func (w *writer) inServiceCIDR(addr netip.Addr) bool {
	known := false
	for _, cidr := range w.node.ServiceCIDRs {
		if cluster.FamilyOf(cidr.Addr()) == w.family {
			if known = true; cidr.Contains(addr) {
				return true
			}
		}
	}
	return !known
}

// gates are the matches of the ranges of cluster IPs: connections to elsewhere skip their tree.
func (w *writer) gates() []string {
	var gates []string
	for _, cidr := range w.node.ServiceCIDRs {
		if cluster.FamilyOf(cidr.Addr()) == w.family {
			gates = append(gates, strings.Replace(source(cidr), "-s", "-d", 1))
		}
	}
	if gates == nil {
		return []string{""}
	}
	return gates
}

// onNode is what a packet has to match to be for a node port's address: its address, and what tells that it is this
// machine's. Either may be empty.
type onNode struct {
	address, local string
}

// onNode gives one match where every address of this machine is a node port's, else one for each.
func (w *writer) onNode() []onNode {
	served := map[netip.Addr]bool{}
	var matches []onNode
	loopback := false
	for _, addr := range w.node.NodePortAddrs {
		// IPv6 has nothing like route_localnet.
		if cluster.FamilyOf(addr) == w.family && (w.family == cluster.IPv4 || !addr.IsLoopback()) {
			served[addr] = true
			matches = append(matches, onNode{address: "-d " + host(addr) + " "})
			loopback = loopback || addr.IsLoopback()
		}
	}
	all := false
	for _, addr := range w.node.Addrs {
		if cluster.FamilyOf(addr) == w.family && !addr.IsLoopback() {
			if all = served[addr]; !all {
				return matches
			}
		}
	}
	const isLocal = " -m addrtype --dst-type LOCAL"
	switch {
	case !all:
		return matches
	case loopback:
		return []onNode{{local: isLocal}}
	default:
		return []onNode{{address: "! -d " + w.loopback + " ", local: isLocal}}
	}
}
