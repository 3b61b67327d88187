package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// TableName is the table in each family. Others recognise this proxy by it.
const TableName = "kube-proxy"

// The sets and maps. One whose declaration changes in a later version needs a new name, since the old one
// stays in use until the new one is complete.
const (
	mapServices      = "services"                 // frontend -> target
	mapNodePorts     = "nodeports"                // node port -> target
	mapUnserved      = "unserved"                 // frontend -> reject or drop
	mapUnservedPorts = "unserved-nodeports"       // node port -> reject or drop
	mapEndpoints     = "endpoints"                // frontend, slot -> endpoint
	mapLocal         = "local-endpoints"          // the same, under an external Local policy
	mapNodePortEnds  = "nodeport-endpoints"       // node port, slot -> endpoint
	mapNodePortLocal = "nodeport-local-endpoints" // the same, under an external Local policy
	setClusterIPs    = "cluster-addresses"
	setNodeAddrs     = "node-addresses"
	setHairpins      = "hairpins"
	chainLayout      = "layout" // bears, in its comment, what the skeleton looked like when it was written
	chainServices    = "services"
	chainUnserved    = "unserved"
	chainClusterIPs  = "undefined-cluster-ports"
)

// Options are the settings that this backend alone understands.
type Options struct {
	// Mark is the packet mark bit that says "masquerade this".
	Mark uint32
}

// dialect is how a family's rules differ from the other's.
type dialect struct {
	family knftables.Family
	ip     string // what its header is called
	addr   string // the type of its addresses
}

func dialectOf(family cluster.Family) dialect {
	if family == cluster.IPv6 {
		return dialect{family: knftables.IPv6Family, ip: "ip6", addr: "ipv6_addr"}
	}
	return dialect{family: knftables.IPv4Family, ip: "ip", addr: "ipv4_addr"}
}

// skeleton is everything in the table but the elements that come and go with Services, and the sized chains
// that they go to. It follows from the node and the options alone.
type skeleton struct {
	sets   []set
	chains []chain
	digest string
}

// set is the declaration of a set or map.
type set struct {
	name, typeOf, plainType string
	isMap                   bool
}

// chain is a chain with its rules.
type chain struct {
	name     string
	kind     knftables.BaseChainType // empty but for base chains
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
	rules    []string
}

// writer renders the parts of a family's ruleset that are text.
type writer struct {
	dialect
	node *plan.Node
	mark uint32
	cidr netip.Prefix
}

func newWriter(family cluster.Family, node *plan.Node, opts Options) *writer {
	w := &writer{dialect: dialectOf(family), node: node, mark: opts.Mark}
	w.cidr, _ = node.LocalTraffic.CIDR(family)
	return w
}

// skeleton renders what the table always holds.
func (w *writer) skeleton() *skeleton {
	s := &skeleton{sets: w.sets(), chains: w.baseChains()}
	s.chains = append(s.chains, w.sharedChains()...)
	text := sha256.New()
	for _, set := range s.sets {
		fmt.Fprintln(text, set)
	}
	for _, chain := range s.chains {
		fmt.Fprintln(text, chain)
	}
	for _, k := range []kind{pick, pickLocal, internal, external, local} { // one of each stands for all
		fmt.Fprintln(text, w.chain(target{kind: k, n: 1, m: 1}), w.chain(target{kind: k, nodePort: true, n: 1, m: 1}))
	}
	s.digest = hex.EncodeToString(text.Sum(nil)[:8])
	return s
}

// sets are declared with those that change most first: the kernel finds a set by walking a list.
func (w *writer) sets() []set {
	frontend := w.ip + " daddr . meta l4proto . th dport"
	const nodePort, slot = "meta l4proto . th dport", " . numgen random mod 2"
	endpoint := " : " + w.ip + " daddr . th dport"
	return []set{
		{name: mapEndpoints, typeOf: frontend + slot + endpoint, isMap: true},
		{name: mapServices, typeOf: frontend + " : verdict", isMap: true},
		{name: mapNodePortEnds, typeOf: nodePort + slot + endpoint, isMap: true},
		{name: mapNodePorts, typeOf: nodePort + " : verdict", isMap: true},
		{name: mapLocal, typeOf: frontend + slot + endpoint, isMap: true},
		{name: mapNodePortLocal, typeOf: nodePort + slot + endpoint, isMap: true},
		{name: setHairpins, plainType: w.addr + " . " + w.addr},
		{name: mapUnserved, typeOf: frontend + " : verdict", isMap: true},
		{name: mapUnservedPorts, typeOf: nodePort + " : verdict", isMap: true},
		{name: setClusterIPs, plainType: w.addr},
		{name: setNodeAddrs, plainType: w.addr},
	}
}

// baseChains hook the table into the packets' way. Their hooks and priorities are a promise to others.
func (w *writer) baseChains() []chain {
	const masquerade = "masquerade fully-random"
	mark := fmt.Sprintf("0x%x", w.mark)
	return []chain{
		{"nat-prerouting", knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority, []string{"jump " + chainServices}},
		{"nat-output", knftables.NATType, knftables.OutputHook, "-100", []string{"jump " + chainServices}},
		{"nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority, []string{
			// The mark is taken off again: a packet that passes here twice, as through a tunnel, is masqueraded once.
			"meta mark & " + mark + " == " + mark + " meta mark set meta mark ^ " + mark + " " + masquerade,
			"ct status dnat " + w.ip + " saddr . " + w.ip + " daddr @" + setHairpins + " " + masquerade,
		}},
		{"filter-input", knftables.FilterType, knftables.InputHook, knftables.FilterPriority, []string{"ct state new jump " + chainUnserved}},
		{"filter-forward", knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority, []string{
			"ct state new jump " + chainUnserved, "ct state new jump " + chainClusterIPs}},
		{"filter-output", knftables.FilterType, knftables.OutputHook, knftables.FilterPriority, []string{
			"ct state new jump " + chainUnserved, "ct state new jump " + chainClusterIPs}},
	}
}

// sharedChains are the chains that do not depend on a number of slots.
func (w *writer) sharedChains() []chain {
	frontend := w.ip + " daddr . meta l4proto . th dport"
	onNode := w.ip + " daddr @" + setNodeAddrs + " meta l4proto . th dport"
	return []chain{
		{name: chainServices, rules: []string{
			frontend + " vmap @" + mapServices,
			onNode + " vmap @" + mapNodePorts,
		}},
		{name: chainUnserved, rules: []string{
			frontend + " vmap @" + mapUnserved,
			onNode + " vmap @" + mapUnservedPorts,
		}},
		{name: chainClusterIPs, rules: w.undefinedPorts()},
		{name: target{kind: reject}.name(), rules: []string{"reject"}},
		{name: target{kind: drop}.name(), rules: []string{"drop"}},
	}
}

// undefinedPorts refuses what still has a cluster IP after DNAT: it is for a port that the Service does not
// have, or for an address that no Service has.
func (w *writer) undefinedPorts() []string {
	rules := []string{w.ip + " daddr @" + setClusterIPs + " reject"}
	for _, cidr := range w.node.ServiceCIDRs {
		if dialectOf(cluster.FamilyOf(cidr.Addr())) == w.dialect {
			rules = append(rules, w.ip+" daddr "+cidr.Masked().String()+" drop")
		}
	}
	return rules
}

// sized renders the rules of a sized chain.
func (w *writer) sized(t target) []nft.Rule {
	onward := func(k kind, n uint32) nft.Goto { return nft.Goto(target{kind: k, nodePort: t.nodePort, n: n}.name()) }
	var rules []nft.Rule
	switch t.kind {
	case pick, pickLocal:
		return []nft.Rule{{w.pick(t)}}
	case internal:
		if fromElsewhere := w.source(false); fromElsewhere != nil {
			rules = append(rules, nft.Rule{fromElsewhere, nft.SetMark(w.mark)})
		}
		return append(rules, nft.Rule{onward(pick, t.n)})
	case external:
		return []nft.Rule{{nft.SetMark(w.mark)}, {onward(pick, t.n)}}
	case local:
		// The node's own connections may go anywhere, but their answers must come back through the node.
		rules = append(rules, nft.Rule{nft.SourceIsLocal{}, onward(external, t.n)})
		if fromPods := w.source(true); fromPods != nil {
			rules = append(rules, nft.Rule{fromPods, onward(pick, t.n)})
		}
		if t.m > 0 {
			rules = append(rules, nft.Rule{onward(pickLocal, t.m)})
		}
	}
	return rules
}

// chain is a sized chain as text.
func (w *writer) chain(t target) chain {
	c := chain{name: t.name()}
	for _, rule := range w.sized(t) {
		c.rules = append(c.rules, rule.Text(w.family))
	}
	return c
}

// pick draws one of n slots and sends the connection to the endpoint in it.
func (w *writer) pick(t target) nft.DNAT {
	d := nft.DNAT{Key: nft.Concat{nft.DestinationAddress, nft.Protocol, nft.DestinationPort, nft.RandomNumber(t.n)}}
	slots, local := slotMaps(t.nodePort)
	if t.nodePort {
		d.Key = d.Key[1:]
	}
	d.Map = slots
	if t.kind == pickLocal {
		d.Map = local
	}
	return d
}

// source matches what is local traffic, or what is not; it is nil where that cannot be told.
func (w *writer) source(local bool) nft.Statement {
	switch {
	case w.node.LocalTraffic.Interface != "":
		return nft.InputInterface{Name: w.node.LocalTraffic.Interface, Not: !local}
	case w.cidr.IsValid():
		return nft.SourceIn{Prefix: w.cidr, Not: !local}
	default:
		return nil
	}
}
