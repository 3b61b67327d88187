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

// The chains that others know by name.
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

// The prefixes of the chains of one port of a Service: its endpoints under the Cluster and the Local policy, its entry
// from outside of the cluster, and that for the sources let in. Those of endpoints and the last are other programs'.
const (
	prefixCluster  = "KUBE-SVC-"
	prefixLocal    = "KUBE-SVL-"
	prefixExternal = "KUBE-EXT-"
	prefixFirewall = "KUBE-FW-"
	prefixEndpoint = "KUBE-SEP-"
	prefixOldLocal = "KUBE-XLB-"
)

// chainName names a chain.
type chainName struct {
	table, name string
}

// Compare sorts by table, then name.
func (c chainName) Compare(o chainName) int {
	if order := strings.Compare(c.table, o.table); order != 0 {
		return order
	}
	return strings.Compare(c.name, o.name)
}

// ours tells whether a chain belongs to this proxy, or to another program in its place.
func (c chainName) ours() bool {
	shared := []string{chainServices, chainNodePorts, chainCanary}
	prefixes := []string{prefixCluster}
	if c.retired() {
		return true
	}
	switch c.table {
	case tableFilter:
		shared = append(shared, chainExternal, chainForward, chainFirewall)
	case tableNAT:
		shared = append(shared, chainPostrouting, chainMark)
		prefixes = append(prefixes, prefixLocal, prefixExternal, prefixFirewall, prefixEndpoint, prefixOldLocal)
	case tableMangle:
		return c.name == chainCanary
	}
	return slices.Contains(shared, c.name) ||
		slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(c.name, prefix) })
}

// retired reports whether only ipvs mode, which this proxy does not have, writes a chain.
func (c chainName) retired() bool {
	switch c.name {
	case "KUBE-NODE-PORT":
		return c.table == tableFilter || c.table == tableNAT
	case "KUBE-LOAD-BALANCER":
		return c.table == tableNAT
	case "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER":
		return c.table == tableFilter
	}
	return false
}

// portKey is one port of a Service, by the name that users write and its protocol.
type portKey struct {
	name     string
	protocol cluster.Protocol
}

func keyOf(r *plan.Route) portKey { return portKey{r.Name, r.Frontend.Protocol} }

// Compare sorts by name, then protocol.
func (k portKey) Compare(o portKey) int {
	if order := strings.Compare(k.name, o.name); order != 0 {
		return order
	}
	return cmp.Compare(k.protocol, o.protocol)
}

func (k portKey) String() string { return k.name + "/" + k.protocol.String() }

// chain is the name of one of the port's chains. Its form is known to others: 16 letters of a hash.
func (k portKey) chain(prefix string) string { return prefix + hash(k.name+protocolName(k.protocol)) }

// endpoint names an endpoint of the port: the list of clients that stay with it is called so.
func (k portKey) endpoint(to netip.AddrPort) string {
	return prefixEndpoint + hash(k.name+protocolName(k.protocol)+to.String())
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// protocolName is how iptables calls a protocol.
func protocolName(p cluster.Protocol) string { return strings.ToLower(p.String()) }
