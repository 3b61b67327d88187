package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

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
	mapEndpoints     = "endpoints"                // frontend, slot -> endpoint
	mapLocal         = "local-endpoints"          // the same, under an external Local policy
	mapNodePortEnds  = "nodeport-endpoints"       // node port, slot -> endpoint
	mapNodePortLocal = "nodeport-local-endpoints" // the same, under an external Local policy
	mapFirewall      = "firewall"                 // frontend -> source ranges
	mapSticky        = "sticky-services"          // frontend -> remember
	mapStickyPorts   = "sticky-nodeports"         // node port -> remember
	setSticky        = "sticky-endpoints"         // endpoint, pool
	setRejected      = "rejected"                 // frontends without an endpoint
	setRejectedPorts = "rejected-nodeports"       // node ports without one
	setDropped       = "dropped"                  // frontends with endpoints elsewhere only, under a Local policy
	setDroppedPorts  = "dropped-nodeports"        // such node ports
	setClusterIPs    = "cluster-addresses"
	setNodeAddrs     = "node-addresses"
	setHairpins      = "hairpins"
	setOnLocalhost   = "localhost-nodeports" // node ports that are rejected on loopback addresses
	chainLayout      = "layout"              // bears, in its comment, what the skeleton looked like when it was written
	chainServices    = "services"
	chainUnserved    = "unserved"
	chainUnservedNP  = "unserved-nodeports"
	chainClusterIPs  = "undefined-cluster-ports"
	chainSticky      = "sticky"
	chainLocalhost   = "rejected-on-localhost"
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
	// localhost are its loopback addresses.
	localhost string
}

func dialectOf(family cluster.Family) dialect {
	if family == cluster.IPv6 {
		return dialect{family: knftables.IPv6Family, ip: "ip6", addr: "ipv6_addr", localhost: "::1"}
	}
	return dialect{family: knftables.IPv4Family, ip: "ip", addr: "ipv4_addr", localhost: "127.0.0.0/8"}
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
	// counts tells that its elements count the packets that they meet.
	counts bool
	// clients tells that packets write it.
	clients bool
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
		for _, t := range []target{{kind: k, n: 2, m: 2}, {kind: k, n: 2, m: 2, seconds: 1}} {
			fmt.Fprintln(text, w.chain(t))
			t.nodePort = true
			fmt.Fprintln(text, w.chain(t))
		}
	}
	fmt.Fprintln(text, w.chain(target{kind: remember, seconds: 1}), w.clients(1))
	fmt.Fprintln(text, w.fromChain(target{kind: from}, &sources{ranges: []netip.Prefix{w.everybody()}}))
	s.digest = hex.EncodeToString(text.Sum(nil)[:8])
	return s
}

// sets are declared with those that change most first: the kernel finds a set by walking a list.
func (w *writer) sets() []set {
	frontend := w.ip + " daddr . meta l4proto . th dport"
	const nodePort, slot = "meta l4proto . th dport", " . numgen random mod 2"
	endpoint := " : " + w.ip + " daddr . th dport"
	return []set{
		{name: mapEndpoints, typeOf: frontend + slot + endpoint, isMap: true, counts: true},
		{name: mapServices, typeOf: frontend + " : verdict", isMap: true, counts: true},
		{name: mapNodePortEnds, typeOf: nodePort + slot + endpoint, isMap: true, counts: true},
		{name: mapNodePorts, typeOf: nodePort + " : verdict", isMap: true, counts: true},
		{name: mapLocal, typeOf: frontend + slot + endpoint, isMap: true, counts: true},
		{name: mapNodePortLocal, typeOf: nodePort + slot + endpoint, isMap: true, counts: true},
		{name: mapFirewall, typeOf: frontend + " : verdict", isMap: true, counts: true},
		{name: setSticky, typeOf: w.ip + " daddr . th dport" + slot + slot},
		{name: mapSticky, plainType: w.addr + " . inet_proto . inet_service : verdict", isMap: true},
		{name: mapStickyPorts, plainType: "inet_proto . inet_service : verdict", isMap: true},
		{name: setHairpins, plainType: w.addr + " . " + w.addr},
		{name: setRejected, typeOf: frontend, counts: true},
		{name: setDropped, typeOf: frontend, counts: true},
		{name: setRejectedPorts, typeOf: nodePort, counts: true},
		{name: setDroppedPorts, typeOf: nodePort, counts: true},
		{name: setClusterIPs, plainType: w.addr},
		{name: setNodeAddrs, plainType: w.addr},
		{name: setOnLocalhost, typeOf: nodePort},
	}
}

// clients declares the affinity map of a timeout.
func (w *writer) clients(t timeout) set {
	const pool = "numgen random mod 2 . numgen random mod 2"
	return set{name: t.name(), isMap: true, clients: true,
		typeOf: w.ip + " saddr . meta l4proto . " + pool + " : " + w.ip + " daddr . th dport"}
}

// everybody is the range of all addresses.
func (w *writer) everybody() netip.Prefix {
	if w.ip == "ip6" {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// baseChains hook the table into the packets' way. Their hooks and priorities are a promise to others.
func (w *writer) baseChains() []chain {
	const masquerade = "masquerade fully-random"
	const sent = "ct state new ct status dnat jump " + chainSticky
	onLocalhost := "ct state new " + w.ip + " daddr " + w.localhost + " meta l4proto . th dport @" + setOnLocalhost + " goto " + chainLocalhost
	// docs/decisions/0015: what conntrack takes for no part of a connection is not translated back, and reaches the client
	// with the endpoint's own address. Of that only the plain segments of servers on this node are dropped.
	stray := "ct state invalid tcp sport < 32768 tcp flags & (fin | syn | rst | ack) == ack " +
		w.ip + " saddr . " + w.ip + " saddr @" + setHairpins + " drop"
	mark := fmt.Sprintf("0x%x", w.mark)
	guarded := "ct state new " + w.ip + " daddr . meta l4proto . th dport vmap @" + mapFirewall
	return []chain{
		{"filter-prerouting-pre-dnat", knftables.FilterType, knftables.PreroutingHook, "-110", []string{guarded}},
		{"filter-output-pre-dnat", knftables.FilterType, knftables.OutputHook, "-110", []string{guarded}},
		{"nat-prerouting", knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority, []string{"jump " + chainServices}},
		{"nat-output", knftables.NATType, knftables.OutputHook, "-100", []string{"jump " + chainServices}},
		{"filter-prerouting-post-dnat", knftables.FilterType, knftables.PreroutingHook, "-99", []string{sent, stray}},
		{"filter-output-post-dnat", knftables.FilterType, knftables.OutputHook, "-99", []string{sent}},
		{"nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority, []string{
			// The mark is taken off again: a packet that passes here twice, as through a tunnel, is masqueraded once.
			"meta mark & " + mark + " == " + mark + " meta mark set meta mark ^ " + mark + " " + masquerade,
			"ct status dnat " + w.ip + " saddr . " + w.ip + " daddr @" + setHairpins + " " + masquerade,
		}},
		// Node ports are rejected on the way in only. A reject in the output hook makes send(2) of the node's own UDP sockets
		// fail with EPERM, instead of with ECONNREFUSED for the ICMP error.
		{"filter-input", knftables.FilterType, knftables.InputHook, knftables.FilterPriority, []string{
			"ct state new jump " + chainUnserved, "ct state new jump " + chainUnservedNP, onLocalhost}},
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
		{name: chainSticky, rules: w.sentFrom()},
		{name: chainUnserved, rules: []string{
			frontend + " @" + setRejected + " reject",
			frontend + " @" + setDropped + " drop",
		}},
		{name: chainUnservedNP, rules: []string{
			onNode + " @" + setRejectedPorts + " reject",
			onNode + " @" + setDroppedPorts + " drop",
		}},
		{name: chainClusterIPs, rules: w.undefinedPorts()},
		{name: chainLocalhost, rules: w.rejectOnLocalhost()},
	}
}

// sentFrom finds out, after DNAT, which frontend a connection met. nft understands the original port only
// where the protocol is known.
func (w *writer) sentFrom() []string {
	var rules []string
	for _, protocol := range []string{"tcp", "udp", "sctp"} {
		original := "meta l4proto " + protocol + " ct original " + w.ip + " daddr"
		rules = append(rules,
			original+" . meta l4proto . ct original proto-dst vmap @"+mapSticky,
			original+" @"+setNodeAddrs+" meta l4proto . ct original proto-dst vmap @"+mapStickyPorts)
	}
	return rules
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

// sized renders the rules of a chain that is written over netlink.
func (w *writer) sized(t target) []nft.Rule {
	onward := func(k kind, n uint32) nft.Goto { return nft.Goto(t.onward(k, n).name()) }
	var rules []nft.Rule
	switch t.kind {
	case pick, pickLocal:
		if t.seconds > 0 {
			return []nft.Rule{
				{nft.DNAT{Key: poolID(t.id).client(), Map: t.seconds.name()}},
				{nft.Goto(t.forgetful().name())},
			}
		}
		rules = []nft.Rule{{w.pick(t)}}
		if t.n > 1 {
			// A transaction may take the slot away between a packet's draw and its lookup: the first one is left.
			rules = append(rules, nft.Rule{nft.Goto(t.first().name())})
		}
		return rules
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
	case remember:
		return []nft.Rule{w.remember(t.seconds, poolID(t.id)), w.remember(t.seconds, poolID(t.id)|localBit)}
	}
	return rules
}

// remember writes down where a client was sent, or that it was there again. It asks whether the pool still
// has the endpoint: what a client without an answer repeats is a new connection each time, and must not bring
// back an endpoint that is gone.
func (w *writer) remember(t timeout, pool poolID) nft.Rule {
	endpoint := nft.Concat{nft.DestinationAddress, nft.DestinationPort}
	return nft.Rule{
		nft.Lookup{Key: slices.Concat(endpoint, pool.operands()), Set: setSticky},
		nft.Update{Map: t.name(), Key: pool.client(), Value: endpoint, Timeout: time.Duration(t) * time.Second},
	}
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
