package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// TableName is the name of the table in each family. Other programs recognise this proxy by it.
const TableName = "kube-proxy"

// The chains of the skeleton that others lead to. The comment of chainLayout has the digest of the skeleton that was written, and the
// fingerprint of the kernel's table at that time.
const (
	chainLayout     = "layout"
	chainRanges     = "source-ranges"
	chainServices   = "services"
	chainUnserved   = "unserved"
	chainUnservedNP = "unserved-nodeports"
	chainClusterIPs = "undefined-cluster-ports"
	chainTranslated = "translated"
	chainWatched    = "watched"
	chainUnanswered = "unanswered"
	chainSticky     = "sticky"
	chainStray      = "stray-segments"
	chainLocalhost  = "rejected-on-localhost"
	chainLoopback   = "received-for-loopback"
	chainLimited    = "limited"
	chainFastPath   = "fast-path"
)

// flowtable is the name of the flowtable: the kernel forwards the packets of its connections where they arrive, before any chain.
const flowtable = "fast-path"

// counterFull counts connections whose clients are not remembered because their affinity map is full.
const counterFull = "affinity-full"

// Options are this backend's settings.
type Options struct {
	// Mark is the bit of the packet mark that requests masquerading.
	Mark uint32
	// Counters limits what map elements count.
	Counters backend.CounterLimits
	// Devices returns the indexes of the machine's devices by name: a flowtable loses one that disappears.
	Devices func() (map[string]int, error)
}

// skeleton is everything in the table except elements and the sized chains that they lead to, which depend on Services.
// It depends on the schema, the node and the options.
type skeleton struct {
	chains []chain
	// digest covers the sets' declarations and all kinds of chains.
	digest string
}

// chain is a chain with its rules.
type chain struct {
	name     string
	kind     knftables.BaseChainType // only for base chains
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
	rules    []string
}

// writer renders the chains of one family's table.
type writer struct {
	*schema
	node *plan.Node
	mark uint32
	cidr netip.Prefix
}

func newWriter(s *schema, node *plan.Node, opts Options) *writer {
	w := &writer{schema: s, node: node, mark: opts.Mark}
	w.cidr, _ = node.LocalTraffic.CIDR(s.family)
	return w
}

// skeleton renders the fixed part of the table.
func (w *writer) skeleton() *skeleton {
	s := &skeleton{chains: append(w.baseChains(), w.sharedChains()...)}
	text := sha256.New()
	for _, set := range slices.Concat(w.sets, []*set{w.clients(0)}, w.meters(target{}, cluster.EveryBound())) {
		fmt.Fprintln(text, set.lines())
	}
	for _, chain := range s.chains {
		fmt.Fprintln(text, chain)
	}
	for _, k := range []kind{pick, pickLocal, internal, external, local} { // one of each kind
		for _, t := range []target{{kind: k, n: 2, m: 2}, {kind: k, n: 2, m: 2, seconds: 1}, {kind: k, n: 2, m: 2, by: cluster.RoundRobin},
			{kind: k, n: 2, m: 2, by: cluster.SourceHash}, {kind: k, n: 2, m: 2, by: cluster.Maglev}} {
			fmt.Fprintln(text, w.chain(t))
			t.guarded = true
			fmt.Fprintln(text, w.chain(t))
			t.guarded, t.fence = false, 1
			fmt.Fprintln(text, w.chain(t))
			t.fence, t.nodePort = 0, true
			fmt.Fprintln(text, w.chain(t))
		}
	}
	fmt.Fprintln(text, w.chain(target{kind: remember, seconds: 1}))
	fmt.Fprintln(text, w.checkChain(target{kind: from}, &checks{ranges: []netip.Prefix{netip.PrefixFrom(w.any, 0)}}))
	fmt.Fprintln(text, w.checkChain(target{kind: bounds}, &checks{fence: cluster.EveryBound()}))
	s.digest = hex.EncodeToString(text.Sum(nil)[:8])
	return s
}

// baseChains returns the chains with hooks. Other programs rely on their hooks and priorities.
//
// Each packet of each connection passes every filter chain of its path, and a chain costs more than its first rules
// (docs/decisions/0023). So there is one for each of the hooks input, forward and output, which accepts established
// connections at once, in the hook input after one comparison of the destination. A first packet meets few lookups that its Service
// does not need (docs/decisions/0023): source ranges are checked on the way to an endpoint, and in forward and output a packet that was
// translated is looked up by its endpoint only.
func (w *writer) baseChains() []chain {
	const masquerade = "masquerade fully-random"
	dnat := []string{"jump " + chainServices}
	mark, unserved := fmt.Sprintf("0x%x", w.mark), w.frontend()+" @"+w.ref(setUnserved)+" goto "+chainUnserved
	guard, _ := w.loopback()
	// Only a forged packet comes from a cluster IP. If the network routes cluster IPs to nodes, the answer would come back.
	var fast []string // docs/decisions/0038
	if w.fast {
		fast = []string{fmt.Sprintf("ct packets > %d ct status dnat ct state established jump %s", plan.FastPathAfter, chainFastPath)}
	}
	prerouting := append([]string{w.ip + " saddr @" + setClusterIPs + " drop"}, dnat...)
	onLocalhost := w.ip + " daddr " + w.localhost + " meta l4proto . th dport @" + setOnLocalhost + " goto " + chainLocalhost
	return []chain{
		{"nat-prerouting", knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority, prerouting},
		{"nat-output", knftables.NATType, knftables.OutputHook, "-100", dnat},
		{"nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority, []string{
			// The mark is removed again, so that a packet that passes here twice, for example in a tunnel, is
			// masqueraded once.
			"meta mark & " + mark + " == " + mark + " meta mark set meta mark ^ " + mark + " " + masquerade,
		}},
		// Node ports are rejected in the input hook only. A reject in the output hook makes send(2) of the node's own
		// UDP sockets fail with EPERM, instead of with ECONNREFUSED for the ICMP error.
		{"filter-input", knftables.FilterType, knftables.InputHook, knftables.FilterPriority,
			append(guard, filtered(true, "ct status dnat "+w.watched()+" jump "+chainSticky, unserved,
				w.onNode()+" @"+w.ref(setUnservedPorts)+" goto "+chainUnservedNP, onLocalhost)...)},
		{"filter-forward", knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority,
			append(fast, filtered(true, "ct status dnat goto "+chainTranslated, unserved, "jump "+chainClusterIPs)...)},
		{"filter-output", knftables.FilterType, knftables.OutputHook, knftables.FilterPriority,
			filtered(false, "ct status dnat goto "+chainTranslated, unserved, "jump "+chainClusterIPs)},
	}
}

// filtered returns the rules of a filter chain, which applies the given ones to new connections. Packets that conntrack
// considers invalid can be stray segments of local servers only if they were received.
func filtered(received bool, rules ...string) []string {
	invalid := "ct state invalid accept"
	if received {
		invalid = "ct state invalid goto " + chainStray
	}
	return append([]string{
		"ct state established,related,untracked accept",
		invalid,
		"ct status confirmed jump " + chainUnanswered,
	}, rules...)
}

// loopback returns a chain that drops packets to loopback addresses that the node has received, except those that a rule has
// translated: answers to connections of the node itself, and connections to another address. The kernel drops them before, unless
// a program, such as iptables mode, has set route_localnet (docs/decisions/0028). The rule that leads there must precede the one for
// established connections. IPv6 has no such setting: the kernel drops what it receives for ::1.
func (w *writer) loopback() (leads []string, chains []chain) {
	if w.family == cluster.IPv6 {
		return nil, nil
	}
	return []string{w.ip + " daddr " + w.localhost + ` iif != "lo" jump ` + chainLoopback}, []chain{{name: chainLoopback, rules: []string{
		w.ip + " saddr " + w.localhost + " drop",
		"ct direction reply return",
		"ct original " + w.ip + " daddr != " + w.localhost + " return",
		"drop",
	}}}
}

// sharedChains returns the chains that do not depend on a number of slots.
func (w *writer) sharedChains() []chain {
	_, more := w.loopback()
	if w.fast {
		more = append(more, chain{name: chainFastPath, rules: w.fastPath()})
	}
	frontend := w.frontend()
	return append([]chain{
		{name: chainServices, rules: []string{
			frontend + " vmap @" + w.ref(mapServices),
			w.onNode() + " vmap @" + w.ref(mapNodePorts),
		}},
		{name: chainUnanswered, rules: w.unanswered()},
		{name: chainSticky, rules: w.sticky()},
		{name: chainStray, rules: []string{w.stray()}},
		w.ranges(),
		w.limited(),
		{name: chainUnserved, rules: slices.Concat([]string{"jump " + chainRanges}, w.drops(frontend+" @"+setDropped+" "), w.rejects(""))},
		{name: chainUnservedNP, rules: slices.Concat(w.drops("meta l4proto . th dport @"+setDroppedPorts+" "), w.rejects(""))},
		w.translated(),
		{name: chainWatched, rules: []string{
			w.ip + " saddr . " + w.ip + " daddr @" + setHairpins + " " + nft.Rule{nft.SetMark(w.mark)}.Text(w.nftFamily),
			"goto " + chainSticky,
		}},
		{name: chainClusterIPs, rules: w.undefinedPorts()},
		{name: chainLocalhost, rules: w.rejectOnLocalhost()},
	}, more...)
}

// ranges checks the source ranges of a frontend that has some. Sized chains lead to it, so it is written before them, too.
func (w *writer) ranges() chain {
	return chain{name: chainRanges, rules: []string{w.frontend() + " vmap @" + w.ref(mapFirewall)}}
}

// limited drops packets of connections that exceed the bounds of their Service, and counts them by frontend. Chains that check bounds lead
// to it.
func (w *writer) limited() chain {
	return chain{name: chainLimited, rules: []string{
		w.frontend() + " @" + w.ref(setLimited) + " drop",
		w.onNode() + " @" + w.ref(setLimitedPorts) + " drop",
		"drop",
	}}
}

// frontend is the key of a frontend in its sets and maps.
func (w *writer) frontend() string { return w.ip + " daddr . meta l4proto . th dport" }

// onNode is the key of a node port, of packets to an address on which node ports are served.
func (w *writer) onNode() string {
	return w.ip + " daddr @" + setNodeAddrs + " meta l4proto . th dport"
}

// protocols are the protocols of frontends.
var protocols = [...]cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}

// original returns, for each protocol, the address to which the client of a connection sent, up to the port. nft accepts
// the original port only if the protocol is known.
func (w *writer) original(rules func(addr string) []string) (all []string) {
	for _, protocol := range protocols {
		all = append(all, rules("meta l4proto "+strings.ToLower(protocol.String())+" ct original "+w.ip+" daddr")...)
	}
	return all
}

// translated handles packets to an endpoint. Few endpoints are watched. An endpoint may be a cluster IP.
func (w *writer) translated() chain {
	return chain{name: chainTranslated, rules: append([]string{w.watched() + " jump " + chainWatched}, w.refuseClusterIPs([]string{w.clusterIP() + " reject"})...)}
}

// unanswered checks the source ranges for connections that conntrack knows, but has seen no reply to. Their packets are new
// ones too, and nat does not see them. So a changed list of ranges applies to a client that sends UDP without an answer.
func (w *writer) unanswered() []string {
	return w.original(func(addr string) []string {
		return []string{addr + " . meta l4proto . ct original proto-dst vmap @" + w.ref(mapFirewall)}
	})
}

// sticky finds the frontend of a connection after DNAT, to remember the client.
func (w *writer) sticky() []string {
	return w.original(func(addr string) []string {
		return []string{
			addr + " . meta l4proto . ct original proto-dst vmap @" + mapSticky,
			addr + " @" + setNodeAddrs + " meta l4proto . ct original proto-dst vmap @" + mapStickyPorts,
		}
	})
}

// fastPath adds a connection to the flowtable if its frontend has a fast path.
func (w *writer) fastPath() []string {
	return w.original(func(addr string) []string {
		return []string{
			addr + " . meta l4proto . ct original proto-dst @" + setFast + " flow add @" + flowtable,
			addr + " @" + setNodeAddrs + " meta l4proto . ct original proto-dst @" + setFastPorts + " flow add @" + flowtable,
		}
	})
}

// stray drops segments of local servers that conntrack considers invalid. They are not translated back, and would reach the
// client with the endpoint's own address. docs/decisions/0015 explains why only plain segments are dropped.
func (w *writer) stray() string {
	return "tcp sport < 32768 tcp flags & (fin | syn | rst | ack) == ack " + w.ip + " saddr . " + w.ip + " saddr @" + setHairpins + " drop"
}

// undefinedPorts refuses packets that still have a cluster IP after DNAT. A new connection that is already confirmed is one that began before
// these rules: no rule translates its retransmitted SYN. That is dropped, so that the client sends it again after the
// conntrack reconciler has deleted the entry (docs/decisions/0011).
func (w *writer) undefinedPorts() []string {
	return append([]string{"ct status confirmed " + w.clusterIP() + " drop"}, w.refuseClusterIPs(w.rejects(w.clusterIP()+" "))...)
}

func (w *writer) clusterIP() string { return w.ip + " daddr @" + setClusterIPs }

// refuseClusterIPs rejects packets to a cluster IP by the given rules, because its Service does not have the port, and drops those to an address that no
// Service has.
func (w *writer) refuseClusterIPs(rules []string) []string {
	for _, cidr := range w.node.ServiceCIDRs {
		if cluster.FamilyOf(cidr.Addr()) == w.family {
			rules = append(rules, w.ip+" daddr "+cidr.Masked().String()+" drop")
		}
	}
	return rules
}

// rejects returns the rules that reject what matches; what is empty or ends with a space.
func (w *writer) rejects(what string) []string {
	if w.node.ResetTCP {
		return []string{what + "meta l4proto tcp reject with tcp reset", what + "reject"}
	}
	return []string{what + "reject"}
}

// drops returns the rules that drop what matches, as in rejects, except what can only be a segment of an earlier connection.
func (w *writer) drops(what string) []string {
	if w.node.ResetTCP {
		return []string{what + "tcp flags & (syn | rst) == 0 reject with tcp reset", what + "drop"}
	}
	return []string{what + "drop"}
}

// sized renders a chain that is written over netlink.
func (w *writer) sized(t target) []nft.Rule {
	switch {
	case t.guarded:
		return []nft.Rule{{nft.Jump(chainRanges)}, {nft.Goto(t.unguarded().name())}}
	case t.fence != 0:
		return []nft.Rule{{nft.Jump(target{kind: bounds, id: t.fence}.name())}, {nft.Goto(t.unfenced().name())}}
	}
	onward := func(k kind, n uint32) nft.Goto { return nft.Goto(t.onward(k, n).name()) }
	var rules []nft.Rule
	switch t.kind {
	case pick, pickLocal:
		if t.seconds > 0 {
			return []nft.Rule{
				{nft.DNAT{Key: client(), Map: poolID(t.id).clients()}},
				{nft.Goto(t.forgetful().name())},
			}
		}
		rules = []nft.Rule{{w.pick(t)}}
		if t.n > 1 {
			// A transaction may remove the slot between a packet's pick and its lookup. The first slot always exists.
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
		// The node's own connections may go to any endpoint, but the replies must return through the node.
		rules = append(rules, nft.Rule{nft.SourceIsLocal{}, onward(external, t.n)})
		if fromPods := w.source(true); fromPods != nil {
			rules = append(rules, nft.Rule{fromPods, onward(pick, t.n)})
		}
		if t.m > 0 {
			rules = append(rules, nft.Rule{onward(pickLocal, t.m)})
		}
	case remember:
		return w.remember(t.seconds, poolID(t.id))
	}
	return rules
}

// remember records the endpoint of a client, or that it connected again, in the maps of both policies' pools. It checks that
// the pool still has the endpoint: each retransmission of a client without an answer is a new connection, and must not restore an
// endpoint that was removed. If a map is full, the rule ends there, and the last one counts the client.
func (w *writer) remember(seconds uint32, port poolID) []nft.Rule {
	endpoint := nft.Concat{nft.DestinationAddress, nft.DestinationPort}
	has := func(pool poolID) nft.Lookup {
		return nft.Lookup{Key: slices.Concat(endpoint, pool.operands()), Set: setSticky}
	}
	update := func(pool poolID) nft.Update {
		return nft.Update{Map: pool.clients(), Key: client(), Value: endpoint, Timeout: time.Duration(seconds) * time.Second}
	}
	local := port | localBit
	return []nft.Rule{{has(local), update(local)}, {has(port), update(port), nft.Return{}}, {has(port), nft.Count(counterFull)}}
}

// fromChain drops packets from other sources with one lookup, however long the list. It compares the original source, because
// the node's own packets to itself have been masqueraded when they arrive.
func (w *writer) fromChain(t target, list *checks) chain {
	texts := make([]string, len(list.ranges))
	for i, r := range list.ranges {
		texts[i] = r.String()
	}
	return chain{name: t.name(), rules: []string{"ct original " + w.ip + " saddr != { " + strings.Join(texts, ", ") + " } drop"}}
}

// chainOf returns a chain of a content, which depends on Services, as text.
func (w *writer) chainOf(t target, of *content) chain {
	if list, ok := of.lists.Get(t); ok {
		return w.checkChain(t, list)
	}
	return w.chain(t)
}

// checkChain returns a chain that checks source ranges or bounds.
func (w *writer) checkChain(t target, of *checks) chain {
	if of.fence != nil {
		return w.fenceChain(t, of.fence)
	}
	return w.fromChain(t, of)
}

// fenceChain checks bounds. Rates come first, because the number of open connections takes the kernel a look at each of them. A client that
// exceeds its own rate uses up nothing of the Service's.
func (w *writer) fenceChain(t target, f *cluster.Fence) chain {
	c := chain{name: t.name()}
	add := func(n uint32, rule string) {
		if n > 0 {
			c.rules = append(c.rules, rule+" goto "+chainLimited)
		}
	}
	rate := func(n uint32) string { return fmt.Sprintf("limit rate over %d/second burst %d packets", n, n) }
	add(f.ClientPerSecond, fmt.Sprintf("update @%s%016x { %s saddr timeout %s %s }", ratePrefix, t.id, w.ip, idle, rate(f.ClientPerSecond)))
	add(f.PerSecond, rate(f.PerSecond))
	add(f.ClientOpen, fmt.Sprintf("add @%s%016x { %s saddr ct count over %d }", openPrefix, t.id, w.ip, f.ClientOpen))
	add(f.Open, fmt.Sprintf("ct count over %d", f.Open))
	return c
}

// chain returns a sized chain as text.
func (w *writer) chain(t target) chain {
	c := chain{name: t.name()}
	for _, rule := range w.sized(t) {
		c.rules = append(c.rules, rule.Text(w.nftFamily))
	}
	return c
}

// watched matches packets to the endpoints of the set of that name.
func (w *writer) watched() string { return w.ip + " daddr @" + setWatched }

// pick picks one of n slots and sends the connection to its endpoint.
func (w *writer) pick(t target) nft.DNAT {
	slot := map[cluster.Algorithm]func(n uint32) nft.Operand{
		cluster.Random: nft.RandomNumber, cluster.RoundRobin: nft.NextNumber, cluster.SourceHash: nft.SourceHash, cluster.Maglev: nft.FlowHash,
	}[t.by]
	d := nft.DNAT{Key: nft.Concat{nft.DestinationAddress, nft.Protocol, nft.DestinationPort, slot(t.n)}}
	switch local := t.kind == pickLocal; {
	case t.nodePort && local:
		d.Key, d.Map = d.Key[1:], w.ref(mapNodePortLocal)
	case t.nodePort:
		d.Key, d.Map = d.Key[1:], w.ref(mapNodePortEnds)
	case local:
		d.Map = w.ref(mapLocal)
	default:
		d.Map = w.ref(mapEndpoints)
	}
	return d
}

// source matches local traffic, or all other traffic; it is nil if local traffic is not detected.
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

// localhostCounter returns the name of the counter for a protocol's packets to node ports that are rejected on loopback
// addresses.
func localhostCounter(protocol cluster.Protocol) string {
	return "rejected-on-localhost-" + strings.ToLower(protocol.String())
}

// rejectOnLocalhost counts a packet by its protocol, and rejects it.
func (w *writer) rejectOnLocalhost() []string {
	var rules []string
	for _, protocol := range protocols {
		rules = append(rules, "meta l4proto "+strings.ToLower(protocol.String())+" counter name "+localhostCounter(protocol))
	}
	return append(rules, "reject")
}
