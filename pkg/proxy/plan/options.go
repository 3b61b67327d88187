package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Options are the decisions that are a user's and not the cluster's. They must not change once used.
type Options struct {
	// NodePorts selects the addresses on which node ports are served.
	NodePorts NodePortAddresses
	// Localhost says what becomes of node ports on loopback addresses that are not among those.
	Localhost Localhost
	// LocalTraffic tells local pods' connections from others. NodeCIDR adds the node's own pod CIDRs to it.
	LocalTraffic LocalTraffic
	NodeCIDR     bool
	// MasqueradeAll masquerades every connection to a cluster IP.
	MasqueradeAll bool
	// ServeExternalIPs believes spec.externalIPs, which nobody acknowledged (CVE-2020-8554).
	ServeExternalIPs bool
}

// NodePortAddresses selects among the addresses of this machine. A family that no CIDR names, where one
// names the other family, is unrestricted.
type NodePortAddresses struct {
	// Primary takes the first address of each family that the Node object tells.
	Primary bool
	// CIDRs take the interfaces' addresses within them.
	CIDRs []netip.Prefix
	// Loopback takes loopback addresses too, where the CIDRs hold them. A backend has to be able to.
	Loopback bool
}

// Localhost is what becomes of connections to node ports on the loopback addresses, where the dataplane does not serve
// them. The zero value leaves them to whoever listens there.
type Localhost struct {
	// Reject rejects them, but for those that the proxy itself listens for.
	Reject bool
	// Forwarded are the families whose TCP node ports the proxy itself listens for.
	Forwarded []cluster.Family
}

// rejects tells whether connections to a node port are rejected there.
func (l *Localhost) rejects(f Frontend) bool {
	return l.Reject && (f.Protocol != cluster.TCP || !slices.Contains(l.Forwarded, f.Family()))
}

// LocalTraffic tells the connections of this node's pods (or of the cluster's, by CIDR) from others. At most
// one of its parts is set; none at all tells nothing apart.
type LocalTraffic struct {
	// CIDRs are the sources of local pods, at most one of each family.
	CIDRs []netip.Prefix
	// Interface is the one that local pods' packets arrive on; where it ends in *, any that begins so.
	Interface string
}

func (l LocalTraffic) equal(o LocalTraffic) bool {
	return l.Interface == o.Interface && slices.Equal(l.CIDRs, o.CIDRs)
}

// Detects tells whether connections of the family can be told apart.
func (l LocalTraffic) Detects(family cluster.Family) bool {
	_, ok := l.CIDR(family)
	return ok || l.Interface != ""
}

// CIDR is the range of local pods of one family.
func (l LocalTraffic) CIDR(family cluster.Family) (netip.Prefix, bool) {
	for _, cidr := range l.CIDRs {
		if cluster.FamilyOf(cidr.Addr()) == family {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

// Is tells whether a packet from source, arrived on the interface of that name, is local traffic. The node's
// own packets have no such interface.
func (l LocalTraffic) Is(source netip.Addr, arrived string) bool {
	if prefix, wild := strings.CutSuffix(l.Interface, "*"); l.Interface != "" {
		return arrived == l.Interface || wild && arrived != "" && strings.HasPrefix(arrived, prefix)
	}
	cidr, ok := l.CIDR(cluster.FamilyOf(source))
	return ok && cidr.Contains(source)
}

// decideNode works out what holds for the node as a whole.
func decideNode(snap *cluster.Snapshot, opts *Options) *Node {
	node := &Node{
		NodePortAddrs: nodePortAddrs(snap.Node, &opts.NodePorts),
		LocalTraffic:  opts.LocalTraffic,
		Addrs:         snap.Node.Interfaces,
		ServiceCIDRs:  snap.ServiceCIDRs,
	}
	if opts.NodeCIDR {
		node.LocalTraffic.CIDRs = snap.Node.PodCIDRs
	}
	return node
}

func nodePortAddrs(node *cluster.Node, sel *NodePortAddresses) []netip.Addr {
	var addrs []netip.Addr
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		of := func(a netip.Addr) bool { return cluster.FamilyOf(a) == family }
		if sel.Primary {
			if at := slices.IndexFunc(node.Addresses, of); at >= 0 {
				addrs = append(addrs, node.Addresses[at])
			}
		}
		for _, addr := range node.Interfaces {
			if of(addr) && sel.selects(addr) && (sel.Loopback || !addr.IsLoopback()) {
				addrs = append(addrs, addr)
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// selects tells whether the CIDRs take an address of this machine.
func (sel *NodePortAddresses) selects(addr netip.Addr) bool {
	named := false
	for _, cidr := range sel.CIDRs {
		if cidr.Contains(addr) {
			return true
		}
		named = named || cluster.FamilyOf(cidr.Addr()) == cluster.FamilyOf(addr)
	}
	return !named && !sel.Primary
}
