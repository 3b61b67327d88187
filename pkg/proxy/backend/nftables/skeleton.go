package nftables

import (
	"crypto/sha256"
	_ "embed" // for skeleton.nft
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
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

// Some chains of skeleton.nft, and the empty chain whose comment has the digest of the skeleton that was written, and the fingerprint of the
// kernel's table at that time.
const (
	chainServices = "services"
	chainRanges   = "source-ranges"
	chainLimited  = "limited"
	chainLayout   = "layout"
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
	s := &skeleton{chains: w.fixed()}
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

//go:embed skeleton.nft
var skeletonText string

// fixed renders the chains that do not depend on Services.
func (w *writer) fixed() (chains []chain) {
	values := map[string][]string{
		"$ip": {w.ip}, "$localhost": {w.localhost}, "$frontend": {w.ip + " daddr . meta l4proto . th dport"}, "$clusterIP": {w.ip + " daddr @" + setClusterIPs},
		"$onNode": {w.ip + " daddr @" + setNodeAddrs + " meta l4proto . th dport"}, "$serviceCIDR": nil,
		"$mark": {fmt.Sprintf("0x%x", w.mark)}, "$setMark": {nft.Rule{nft.SetMark(w.mark)}.Text(w.number)}, "$fastAfter": {strconv.Itoa(plan.FastPathAfter)},
		"$ipv4": when(w.family == cluster.IPv4), "$fast": when(w.fast), "$resetTCP": when(w.node.ResetTCP),
	}
	for _, cidr := range w.node.ServiceCIDRs {
		if cluster.FamilyOf(cidr.Addr()) == w.family {
			values["$serviceCIDR"] = append(values["$serviceCIDR"], cidr.Masked().String())
		}
	}
	for _, set := range w.sets {
		if name, other := strings.CutSuffix(set.name, uncounted); other {
			values["@"+name] = []string{"@" + set.name}
		}
	}
	for line := range strings.Lines(skeletonText) {
		line, _, _ = strings.Cut(line, "#")
		for _, words := range expanded(strings.Fields(line), values) {
			switch {
			case len(words) == 0 || words[0] == "}":
			case words[0] == "chain":
				chains = append(chains, chain{name: words[1]})
			case words[0] == "type": // type nat hook output priority -100
				c := &chains[len(chains)-1]
				c.kind, c.hook, c.priority = knftables.BaseChainType(words[1]), knftables.BaseChainHook(words[3]), knftables.BaseChainPriority(words[5])
			default:
				c := &chains[len(chains)-1]
				c.rules = append(c.rules, strings.Join(words, " "))
			}
		}
	}
	return chains
}

// when returns the values of a word that leaves out its line, or is nothing itself.
func when(is bool) []string {
	if is {
		return []string{""}
	}
	return nil
}

// expanded returns a line for each value of its words.
func expanded(words []string, values map[string][]string) [][]string {
	lines := [][]string{nil}
	for _, word := range words {
		of, variable := values[word]
		if !variable {
			of = []string{word}
		}
		var longer [][]string
		for _, line := range lines {
			for _, value := range of {
				longer = append(longer, append(slices.Clip(line), strings.Fields(value)...))
			}
		}
		lines = longer
	}
	return lines
}

// chain returns one of the fixed chains.
func (s *skeleton) chain(name string) chain {
	return s.chains[slices.IndexFunc(s.chains, func(c chain) bool { return c.name == name })]
}

// protocols are the protocols of frontends.
var protocols = [...]cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}

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
		c.rules = append(c.rules, rule.Text(w.number))
	}
	return c
}

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
