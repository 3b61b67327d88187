package iptables

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// The tables.
const (
	tableFilter = "filter"
	tableNAT    = "nat"
	tableMangle = "mangle"
)

// tables lists the tables with chains of ours. Each is read and written separately.
func tables() []string { return []string{tableFilter, tableNAT, tableMangle} }

// The chains that other programs know by name.
const (
	chainServices    = "KUBE-SERVICES"
	chainExternal    = "KUBE-EXTERNAL-SERVICES"
	chainNodePorts   = "KUBE-NODEPORTS"
	chainForward     = "KUBE-FORWARD"
	chainFirewall    = "KUBE-PROXY-FIREWALL"
	chainPostrouting = "KUBE-POSTROUTING"
	chainMark        = "KUBE-MARK-MASQ"
	chainCanary      = "KUBE-PROXY-CANARY"
	// chainLocalnet is shared with the kubelet: it is never emptied or deleted.
	chainLocalnet = "KUBE-FIREWALL"
)

// The prefixes of the chains of one port of a Service.
const (
	// prefixCluster and prefixLocal are the endpoints under the policies Cluster and Local.
	prefixCluster = "KUBE-SVC-"
	prefixLocal   = "KUBE-SVL-"
	// prefixExternal is for connections to any address but the cluster IP, prefixFirewall for those with source ranges.
	prefixExternal = "KUBE-EXT-"
	prefixFirewall = "KUBE-FW-"
	// prefixEndpoint is one endpoint, or the list of its clients.
	prefixEndpoint = "KUBE-SEP-"
	// chainTrial is used only to see whether anything can be written.
	chainTrial = prefixCluster + "TRIAL"
	// prefixOldLocal is the prefixLocal of older programs.
	prefixOldLocal = "KUBE-XLB-"
)

// kind is a kind of chains of this proxy or another kube-proxy.
type kind struct {
	tables []string
	// names are whole names, prefixes the start of others.
	names, prefixes []string
	// retired means that only ipvs mode, which this proxy does not have, creates such chains.
	retired bool
}

// kinds returns all of them. The chains of the trees (see dispatches) have prefixCluster, so that other programs
// recognise them as well.
func kinds() [7]kind {
	return [...]kind{
		{tables(), []string{chainCanary}, nil, false},
		{[]string{tableFilter, tableNAT}, []string{chainServices, chainNodePorts}, []string{prefixCluster}, false},
		{[]string{tableFilter}, []string{chainExternal, chainForward, chainFirewall}, nil, false},
		{[]string{tableNAT}, []string{chainPostrouting, chainMark},
			[]string{prefixLocal, prefixExternal, prefixFirewall, prefixEndpoint, prefixOldLocal}, false},
		{[]string{tableFilter, tableNAT}, []string{"KUBE-NODE-PORT"}, nil, true},
		{[]string{tableNAT}, []string{"KUBE-LOAD-BALANCER"}, nil, true},
		{[]string{tableFilter}, []string{"KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"}, nil, true},
	}
}

// maxLevels is the number of levels of the deepest tree, which ports have: the protocol and 16 bits. nf_tables follows at most 16 chains
// (NFT_JUMP_STACK_SIZE), so that trees of addresses, whose leaves jump to four more, look at 18 bits.
const maxLevels = 1 + 16/digitBits

// rank orders the writes of one patch: a chain exists and is complete before a rule jumps to it.
type rank int

// The ranks, from chains without jumps to those that built-in chains lead to. The chains of trees are between rankTree
// and rankTop, the deepest first.
const (
	rankFixed rank = iota
	rankPort
	rankTree
	rankTop = rankTree + maxLevels + 1
)

// chainName identifies a chain.
type chainName struct {
	table, name string
}

// localnetChain is the chain that is shared with the kubelet.
func localnetChain() chainName { return chainName{tableFilter, chainLocalnet} }

// Compare sorts by table, then name.
func (c chainName) Compare(o chainName) int {
	return cmp.Or(strings.Compare(c.table, o.table), strings.Compare(c.name, o.name))
}

// kind reports whether a chain is of one of the kinds, and not another program's, and whether only ipvs mode creates it.
func (c chainName) kind() (ours, retired bool) {
	for _, k := range kinds() {
		if slices.Contains(k.tables, c.table) && (slices.Contains(k.names, c.name) ||
			slices.ContainsFunc(k.prefixes, func(prefix string) bool { return strings.HasPrefix(c.name, prefix) })) {
			return true, k.retired
		}
	}
	return false, false
}

// ours reports whether a chain is of one of the kinds.
func (c chainName) ours() bool {
	ours, _ := c.kind()
	return ours
}

// retired reports whether only ipvs mode creates a chain.
func (c chainName) retired() bool {
	_, retired := c.kind()
	return retired
}

// portKey is one port of a Service: its name as users write it, and its protocol. The zero value is no port.
type portKey struct {
	name     string
	protocol cluster.Protocol
}

func keyOf(r *plan.Route) portKey { return portKey{r.Name, r.Frontend.Protocol} }

// Compare sorts by name, then protocol.
func (k portKey) Compare(o portKey) int {
	return cmp.Or(strings.Compare(k.name, o.name), cmp.Compare(k.protocol, o.protocol))
}

func (k portKey) String() string { return k.name + "/" + k.protocol.String() }

// chain returns the name of one of the port's chains: a prefix and 16 letters of a hash, which other programs compute, too.
func (k portKey) chain(prefix string) string { return prefix + hash(k.name+protocolName(k.protocol)) }

// endpoint returns the name of an endpoint's chain, which is also the name of the list of its clients.
func (k portKey) endpoint(to netip.AddrPort) string {
	return prefixEndpoint + hash(k.name+protocolName(k.protocol)+to.String())
}

// hash returns 16 letters, which stand for 10 bytes of the hash.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:10])
}

// protocolName returns the name of a protocol in iptables.
func protocolName(p cluster.Protocol) string { return strings.ToLower(p.String()) }
