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

// tables lists the tables that hold chains of ours. Each is read and written by itself.
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
	// chainLocalnet is shared with the kubelet: never emptied, never deleted.
	chainLocalnet = "KUBE-FIREWALL"
)

// The prefixes of the chains of one port of a Service.
const (
	// prefixCluster and prefixLocal hold the endpoints under the policies Cluster and Local.
	prefixCluster = "KUBE-SVC-"
	prefixLocal   = "KUBE-SVL-"
	// prefixExternal is where connections enter by any address but the cluster IP, prefixFirewall the same for source ranges.
	prefixExternal = "KUBE-EXT-"
	prefixFirewall = "KUBE-FW-"
	// prefixEndpoint holds one endpoint. The lists of its clients have such a name, too.
	prefixEndpoint = "KUBE-SEP-"
	// prefixOldLocal is what older programs called prefixLocal.
	prefixOldLocal = "KUBE-XLB-"
)

// kind is chains that belong to this proxy, or to another program in its place.
type kind struct {
	tables []string
	// names are whole names, prefixes what many names begin with.
	names, prefixes []string
	// retired means that only ipvs mode, which this proxy does not have, writes such chains.
	retired bool
}

// kinds lists all of them. The chains of the trees (see dispatches) have prefixCluster, so that other programs recognise
// them as well.
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

// maxLevels is the most levels that a tree of any shape has.
const maxLevels = 8

// rank orders the writes of one patch: whatever a rule goes to is there, and complete, before the rule is.
type rank int

// The ranks, from chains that go nowhere to those that built-in chains lead to. The chains of trees are between rankTree and
// rankTop, the deepest first.
const (
	rankFixed rank = iota
	rankPort
	rankTree
	rankTop = rankTree + maxLevels + 1
)

// chainName names a chain.
type chainName struct {
	table, name string
}

// Compare sorts by table, then name.
func (c chainName) Compare(o chainName) int {
	return cmp.Or(strings.Compare(c.table, o.table), strings.Compare(c.name, o.name))
}

// kind returns the kind of a chain; none if another program's.
func (c chainName) kind() (_ kind, ours bool) {
	for _, k := range kinds() {
		if slices.Contains(k.tables, c.table) && (slices.Contains(k.names, c.name) ||
			slices.ContainsFunc(k.prefixes, func(prefix string) bool { return strings.HasPrefix(c.name, prefix) })) {
			return k, true
		}
	}
	return kind{}, false
}

// ours reports whether a chain is of one of the kinds.
func (c chainName) ours() bool {
	_, ours := c.kind()
	return ours
}

// retired reports whether only ipvs mode writes a chain.
func (c chainName) retired() bool {
	k, _ := c.kind()
	return k.retired
}

// portKey is one port of a Service, by the name that users write and its protocol. The zero portKey is none.
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

// chain is the name of one of the port's chains. Other programs know its form: a prefix and 16 letters of a hash.
func (k portKey) chain(prefix string) string { return prefix + hash(k.name+protocolName(k.protocol)) }

// endpoint is the name of the chain of an endpoint of the port, and of the list of clients that stay with it.
func (k portKey) endpoint(to netip.AddrPort) string {
	return prefixEndpoint + hash(k.name+protocolName(k.protocol)+to.String())
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// protocolName is what iptables calls a protocol.
func protocolName(p cluster.Protocol) string { return strings.ToLower(p.String()) }
