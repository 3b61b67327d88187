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
	// LocalTraffic tells local pods' connections from others. With NodeCIDR, the node's own pod CIDRs do. Until these are
	// known, connections to cluster IPs are all masqueraded (docs/decisions/0017).
	LocalTraffic LocalTraffic
	NodeCIDR     bool
	// SingleStack serves only the family of the node's primary address, and both families until that is known.
	SingleStack bool
	// MasqueradeAll masquerades every connection to a cluster IP.
	MasqueradeAll bool
	// ServeExternalIPs believes spec.externalIPs, which nobody acknowledged (CVE-2020-8554).
	ServeExternalIPs bool
}

// NodePortAddresses selects among the addresses of this machine. A family for which it has no CIDR is unrestricted.
type NodePortAddresses struct {
	// Primary selects the Node's address of each family. It is the CIDR of that address alone, and none in a family of
	// which the Node has no address.
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

// serves reports whether a family is served on a node.
func (o *Options) serves(node *cluster.Node, family cluster.Family) bool {
	primary, known := node.Primary()
	return !o.SingleStack || !known || family == primary
}

// podCIDRsUnknown reports whether local traffic is to be detected by pod CIDRs that the node does not have yet.
func (o *Options) podCIDRsUnknown(node *cluster.Node) bool {
	return o.NodeCIDR && len(node.PodCIDRs) == 0
}

// sameForServices reports whether two versions of the node lead to the same decisions about every Service.
func (o *Options) sameForServices(a, b *cluster.Node) bool {
	return a.Zone == b.Zone && slices.Equal(a.Addresses, b.Addresses) && o.podCIDRsUnknown(a) == o.podCIDRsUnknown(b)
}

// decideNode works out what holds for the node as a whole.
func decideNode(snap *cluster.Snapshot, opts *Options) *Node {
	node := &Node{
		LocalTraffic: opts.LocalTraffic,
		Addrs:        snap.Node.Interfaces,
	}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if opts.serves(snap.Node, family) {
			node.NodePortAddrs = append(node.NodePortAddrs, opts.NodePorts.of(snap.Node, family)...)
		}
	}
	for _, cidr := range snap.ServiceCIDRs {
		if opts.serves(snap.Node, cluster.FamilyOf(cidr.Addr())) {
			node.ServiceCIDRs = append(node.ServiceCIDRs, cidr)
		}
	}
	if opts.NodeCIDR {
		node.LocalTraffic.CIDRs = snap.Node.PodCIDRs
	}
	return node
}

// of returns the node's addresses of a family that are selected, sorted.
func (sel *NodePortAddresses) of(node *cluster.Node, family cluster.Family) []netip.Addr {
	var addrs []netip.Addr
	if primary, known := sel.primary(node, family); known {
		addrs = append(addrs, primary)
	}
	everything := sel.Unrestricted(node, family)
	for _, addr := range node.Interfaces {
		within := func(cidr netip.Prefix) bool { return cidr.Contains(addr) }
		if cluster.FamilyOf(addr) == family && (everything || slices.ContainsFunc(sel.CIDRs, within)) && (sel.Loopback || !addr.IsLoopback()) {
			addrs = append(addrs, addr)
		}
	}
	return sortedSet(addrs)
}

// Unrestricted reports whether node ports of a family are served on all addresses of the machine, because no CIDR of the
// family is selected. Whether Primary selects one is not known before the Node has any address: until then the family is
// restricted.
func (sel *NodePortAddresses) Unrestricted(node *cluster.Node, family cluster.Family) bool {
	for _, cidr := range sel.CIDRs {
		if cluster.FamilyOf(cidr.Addr()) == family {
			return false
		}
	}
	_, selected := sel.primary(node, family)
	return !selected && (!sel.Primary || len(node.Addresses) > 0)
}

// primary returns the node's address of a family if Primary selects it. A loopback address is nobody's primary one.
func (sel *NodePortAddresses) primary(node *cluster.Node, family cluster.Family) (netip.Addr, bool) {
	addr, known := node.Address(family)
	return addr, sel.Primary && known && !addr.IsLoopback()
}
